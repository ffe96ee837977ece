#!/bin/sh
# A systemd of our own, as PID 1 of namespaces of its own. `keep` runs outside, for as long as its stdin stays open;
# `boot` runs inside, and becomes systemd. See private.py, which starts `keep`.
set -eu

# keep CGROUP STAGE LEVEL MOUNT… -- SHARED…: prints the pid of `unshare`, whose one child is systemd.
keep() {
	cgroup=$1 stage=$2
	trap : HUP INT TERM
	mkdir "$stage"
	mkdir "$cgroup" || {
		rmdir "$stage"
		return 1
	}
	{
		echo 0 >"$cgroup/cgroup.procs"
		exec setpriv --pdeathsig KILL \
			unshare --pid --fork --kill-child --mount --uts --ipc --cgroup /bin/sh "$0" boot "$@" </dev/null >/dev/null
	} &
	echo "$!"
	read -r _ || :
	# Whose parent lives is reaped; not every init of a container does that.
	read -r inner <"/proc/$!/task/$!/children" || :
	kill -KILL ${inner:-"$!"} 2>/dev/null || :
	wait "$!" || :
	tidy
}

# The processes are dying: their cgroups can't be removed before they have gone.
tidy() {
	rmdir "$stage"
	for _ in $(seq 200); do
		find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || :
		[ -d "$cgroup" ] || return 0
		sleep 0.01
	done
	return 1
}

# boot CGROUP STAGE LEVEL MOUNT… -- SHARED…
boot() {
	stage=$2 level=$3
	shift 3
	mount -t tmpfs -o mode=0755 tmpfs "$stage"
	root=$stage/root
	mkdir "$root" "$stage/upper" "$stage/work"
	mount -t overlay -o "lowerdir=/,upperdir=$stage/upper,workdir=$stage/work" overlay "$root"
	configure
	pseudo
	bind "$@"
	cd "$root"
	pivot_root . .
	umount -l .
	cd /
	exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 container=other \
		SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/systemd/system:/run/brokerctl-base \
		SYSTEMD_GENERATOR_PATH=/nonexistent SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nonexistent \
		/lib/systemd/systemd --system --unit=brokerctl-test.target --log-target=journal --log-level="$level" --show-status=0
}

# The manager's own configuration: none of the host's.
configure() {
	rm -f "$root/etc/machine-id"
	tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
	mkdir -p "$root/etc/systemd"
	mount -t tmpfs -o mode=0755 tmpfs "$root/etc/systemd"
	mkdir "$root/etc/systemd/system"
	mount -t tmpfs -o mode=0755 tmpfs "$root/run"
	mkdir "$root/run/brokerctl-base"
	cp "$(dirname "$0")"/base/* "$root/run/brokerctl-base"
	mv "$root/run/brokerctl-base/journald.conf" "$root/etc/systemd"
	cp /lib/systemd/system/dbus.socket /lib/systemd/system/dbus.service "$root/run/brokerctl-base"
}

# /dev is our own too: systemd would leave links in the host's.
pseudo() {
	mount -t proc proc "$root/proc"
	frozen_settings
	mount -t sysfs sysfs "$root/sys"
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
	mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
	mkdir "$root/dev/pts" "$root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
	ln -s pts/ptmx "$root/dev/ptmx"
	ln -s /proc/self/fd "$root/dev/fd"
	for name in null zero full random urandom tty; do
		: >"$root/dev/$name"
		mount --bind "/dev/$name" "$root/dev/$name"
	done
}

# systemd raises settings of the kernel, and they would stay when it has gone. Of the network's it needs one: longer
# queues of datagrams, net.unix.max_dgram_qlen, or a burst in its log is lost.
frozen_settings() {
	mount --bind "$root/proc/sys" "$root/proc/sys"
	mount -o remount,bind,ro "$root/proc/sys"
	mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
	mount -o remount,bind,rw "$root/proc/sys/net"
}

# An overlay of / has no mounts below. What is shared is written on the host itself.
bind() {
	shared=false
	for path; do
		if [ "$path" = -- ]; then
			shared=true
		elif $shared; then
			mkdir -p "$root$path"
			mount --rbind "$path" "$root$path"
		else
			# One that nobody can use is missed by nobody.
			mount --bind "$path" "$root$path" 2>/dev/null || :
		fi
	done
}

"$@"
