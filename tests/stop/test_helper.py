"""The helper as the core has it: a process at the other end of two pipes, here with a `flux` that prints recordings."""

import os
import select
import signal
import time

import pytest

from brokerctl.durations import MS, S
from brokerctl.kernel import proc
from brokerctl.records.stops import Holding, Limits, Look, Peers, Report, ShedRank, Sheds
from brokerctl.stop import aide, protocol
from brokerctl.stop.broker import FluxBroker, newest
from brokerctl.stop.errands import Said
from brokerctl.stop.fluxcommand import option, uri
from brokerctl.stop.protocol import STATUS_PREFIX, Question
from brokerctl.stop.target import Aim
from tests.stop.real_flux import wait_for
from tests.stop.recordings import FOLDER, drive, text

PATIENCE_S = 20
FLUX = f"""\
#!/bin/sh
echo "$$ $*" >> @FOLDER@/asked
[ -e "@FOLDER@/hang-$1" ] && exec sleep 1000
case "$*" in
uptime) cat @FOLDER@/uptime ;;
"lsattr -v") cat {FOLDER}/lsattr.txt ;;
"overlay status"*) cat {FOLDER}/overlay-shutdown-rank1-frozen.txt ;;
"overlay disconnect 1") ;;
"overlay disconnect"*) echo "flux-overlay: not now" >&2; exit 1 ;;
"job list"*) cat {FOLDER}/job-list.txt ;;
"jobtap query perilog.so") echo '{{"procs":{{"ƒabc":{{"active_ranks":"@ACTING@"}}}}}}' ;;
"module stats"*) cat {FOLDER}/stats-job-manager.txt ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
"""


class Core:
    """Asks a helper, and takes its answers in as they come."""

    def __init__(self, aim, life):
        self.child, self._questions, self._answers = aide.begin(aim, life)
        self._buffer = b""
        self._count = 0

    def ask(self, what, *words, within_ns=10 * S):
        """Send a question; its number."""
        self._count += 1
        os.write(self._questions, protocol.encode(Question(self._count, what, words, within_ns)))
        return self._count

    def next(self):
        """The next answer, whichever it is."""
        while b"\n" not in self._buffer:
            assert select.select([self._answers], [], [], PATIENCE_S)[0], "no answer"
            data = os.read(self._answers, 1 << 16)
            assert data, "the helper has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return protocol.reply(line)

    def answer(self, what, *words, **options):
        """Ask one thing and wait for it."""
        number = self.ask(what, *words, **options)
        reply = self.next()
        assert reply.id == number
        assert reply.answer is not None, reply.error
        return reply.answer

    def hang_up(self):
        """End the questions; the helper's exit code."""
        os.close(self._questions)
        self._questions = -1
        end = time.monotonic() + PATIENCE_S
        while not (found := os.waitpid(self.child.pid, os.WNOHANG))[0]:
            assert time.monotonic() < end, "the helper does not end"
            time.sleep(0.01)
        self.child = self.child._replace(pid=0)
        return os.waitstatus_to_exitcode(found[1])

    def close(self):
        """Whatever it does, it ends."""
        if self.child.pid:
            os.kill(self.child.pid, signal.SIGKILL)
            os.waitpid(self.child.pid, 0)
        for fd in (self._questions, self._answers, self.child.pidfd):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def flux(tmp_path, monkeypatch):
    """The folder of a `flux` that prints recordings; `uptime` and `hang-COMMAND` in it are for the test to write."""
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    (tmp_path / "flux").write_text(FLUX.replace("@FOLDER@", str(tmp_path)).replace("@ACTING@", "2"))
    (tmp_path / "flux").chmod(0o755)
    (tmp_path / "uptime").write_text(text("uptime-shutdown"))
    return tmp_path


@pytest.fixture(params=[aide.serve, aide.serve_first], ids=["a later helper", "the first helper"])
def core(flux, request):
    """A core whose main is this very process, and a helper of either life."""
    made = Core(aim_at(flux), request.param)
    yield made
    made.close()


@pytest.fixture
def begun(flux):
    """A core with its first helper."""
    made = Core(aim_at(flux), aide.serve_first)
    yield made
    made.close()


def aim_at(flux):
    owner = proc.credentials(os.getpid())
    return Aim("flux", os.getpid(), "flux-broker-0", "", owner, str(flux / "flux"))


def asked(flux):
    """The commands that Flux was given so far, without their options."""
    log = flux / "asked"
    return [" ".join(line.split()[1:3]) for line in log.read_text().splitlines()] if log.exists() else []


def test_the_first_helper_asks_ahead_what_decides_nothing_and_never_the_state(begun, flux):
    wait_for(lambda: len(asked(flux)) >= 2, "commands ahead")
    assert sorted(asked(flux)) == ["job list", "module stats"]
    assert begun.answer("look").limits == Limits(45 * S, None)
    assert begun.answer("before").lines[0].startswith("running: 2 jobs on 3 nodes: ")
    assert asked(flux).count("job list") == asked(flux).count("module stats") == 1


def test_a_look_at_a_stop_waits_for_its_limits_and_one_at_run_does_not(begun, flux):
    (flux / "hang-lsattr").touch()
    (flux / "uptime").write_text(text("uptime-run"))
    assert begun.answer("look").state == "run"
    (flux / "hang-lsattr").unlink()
    (flux / "uptime").write_text(text("uptime-shutdown"))
    assert begun.answer("look").limits == Limits(45 * S, None)


def test_a_look_tells_state_rank_and_limits_as_they_are_now(core, flux):
    asked_ns = time.monotonic_ns()
    found = core.answer("look")
    assert 1750 * MS <= found.held_ns <= 1750 * MS + time.monotonic_ns() - asked_ns
    assert found == Look("shutdown", held_ns=found.held_ns, rank=0, size=4, limits=Limits(45 * S, None))
    (flux / "uptime").write_text(text("uptime-run"))
    assert core.answer("look").state == "run"


def test_a_look_that_finds_nobody_has_no_state(core, flux):
    (flux / "uptime").write_text("")
    assert core.answer("look").state == ""


def test_peers_tell_who_is_to_blame(core):
    assert core.answer("peers") == Peers(
        "1 peer: picl1", (Holding(1, "picl1", "does not answer (Connection timed out)", "2"),)
    )


def test_in_cleanup_only_who_has_work_of_a_job_or_does_not_answer_is_to_blame(core, flux):
    """Nobody says goodbye before SHUTDOWN: to blame who has not would disconnect a whole healthy system."""
    (flux / "uptime").write_text(text("uptime-shutdown").replace("shutdown", "cleanup"))
    assert core.answer("look").state == "cleanup"
    assert [(one.rank, one.status) for one in core.answer("peers").holding] == [
        (1, "does not answer (Connection timed out)"),
        (2, "a prolog or epilog runs there"),
    ]


def test_shedding_tells_what_was_cut_off_and_what_could_not_be(core, flux):
    assert core.answer("shed", "1,3") == Sheds(
        (
            ShedRank(1, "picl1", "2", ("ƒ2a8GreK",)),
            ShedRank(3, "picl3", error=f"{flux}/flux overlay disconnect: flux-overlay: not now"),
        )
    )


def test_a_rank_is_shed_even_if_nobody_can_tell_what_is_below_it(core, flux):
    (flux / "hang-overlay").touch()
    (flux / "flux").write_text((flux / "flux").read_text().replace('"overlay disconnect 1") ;;', "").replace(
        "[ -e", '[ "$2" = disconnect ] && exit 0\n[ -e', 1
    ))  # fmt: skip
    assert core.answer("shed", "1") == Sheds((ShedRank(1, jobs=("ƒ2a8GreK",)),))


def test_the_report_tells_what_runs_before_and_how_it_went(core):
    before = core.answer("before")
    assert before.lines[0].startswith("running: 2 jobs on 3 nodes: ")
    assert core.answer("look").state == "shutdown"
    after = core.answer("after", "took=1000000000", "state.cleanup=500000000")
    assert isinstance(after, Report)
    assert after.lines[0] == "stopped in 1.0s: cleanup 500ms"
    assert "housekeeping that had not ended" in after.lines[1]


def test_a_question_that_hangs_holds_up_no_other(core, flux):
    (flux / "hang-overlay").touch()
    hanging = core.ask("peers", within_ns=1 * S)
    asked = core.ask("look")
    first, second = core.next(), core.next()
    assert (first.id, second.id) == (asked, hanging)
    assert "no answer within" in second.error


def test_every_answer_comes_in_its_time_however_much_hangs(core, flux):
    for name in ("uptime", "overlay", "job", "module", "lsattr"):
        (flux / f"hang-{name}").touch()
    began = time.monotonic()
    for what in ("look", "peers", "before", "after"):
        core.ask(what, within_ns=1 * S)
    replies = [core.next() for _ in range(4)]
    assert time.monotonic() - began < 10
    assert {reply.id for reply in replies} == {1, 2, 3, 4}
    look = next(reply for reply in replies if reply.id == 1)
    assert "uptime: no answer within" in look.error


def test_a_question_that_is_none_is_an_error_and_not_the_end(core):
    core.ask("shed")
    assert "IndexError" in core.next().error
    core.ask("holders", "0")
    assert "holders: is no question for the helper" in core.next().error
    assert core.answer("look").state == "shutdown"


def test_the_end_of_the_questions_is_the_helper_s_end_and_its_commands_are_ended(core, flux):
    (flux / "hang-overlay").touch()
    core.ask("peers")
    end = time.monotonic() + PATIENCE_S
    while not (flux / "asked").exists() or "overlay" not in (flux / "asked").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert core.hang_up() == 0
    assert proc.stat(int((flux / "asked").read_text().split()[0])) is None


# ---- what it knows of a broker


@pytest.mark.parametrize(
    ("words", "name", "where"),
    [
        (["broker", "-Slocal-uri=local:///run/flux/local", "-Srundir=/run/flux"], "flux-broker-0", "local:///run/flux/local"),
        (["broker", "--setattr=rundir=/run/x"], "flux-broker-3", "local:///run/x/local-3"),
        (["broker", "-S", "rundir=/run/x"], "flux-broker-0", "local:///run/x/local-0"),
        (["broker", "-Srundir=/a", "-Srundir=/b"], "lt-flux-broker", "local:///b/local-0"),
        (["broker"], "flux-broker-0", ""),
    ],
)  # fmt: skip
def test_where_a_broker_listens_is_told_by_its_command_line(words, name, where):
    assert uri(words, name) == where


def test_an_attribute_is_read_as_the_broker_reads_it():
    words = ["broker", "-Srundir=/a=b", "--setattr=size", "-Sx"]
    assert option(words, "rundir") == "/a=b"
    assert option(words, "size") == option(words, "x") == ""


def a_broker():
    return FluxBroker(Aim("flux", os.getpid(), "flux-broker-0", "flux.service", proc.User(1, 1), "/usr/bin/flux"))


def looks(answers):
    """A look at a broker that is asked by recordings."""
    broker = a_broker()

    def answer(argv):
        return answers.get(argv[1] if argv[0] == "/usr/bin/flux" else argv[0], "")

    return broker, lambda: drive(broker.look(), answer)


def test_the_status_tells_the_state_where_flux_does_not_answer_and_says_that_it_guesses():
    answers = {"uptime": OSError("no answer"), "systemctl": "Running flux modprobe rc3\n"}
    _, look = looks(answers)
    found, asked = look()
    assert (found.state, found.guessed, found.text) == ("finalize", True, "Running flux modprobe rc3")
    assert {tuple(command.argv[:2]) for command in asked} >= {("/usr/bin/flux", "uptime"), ("systemctl", "show")}
    assert all(command.user == proc.User(1, 1) for command in asked if command.argv[0] != "systemctl")


def test_our_own_status_is_never_taken_for_main_s():
    answers = {"uptime": OSError("no answer"), "systemctl": "Running flux queue idle --quiet\n"}
    _, look = looks(answers)
    look()
    answers["systemctl"] = f"{STATUS_PREFIX} cleanup: Running flux queue idle --quiet, 5s left\n"
    with pytest.raises(OSError, match="no answer"):
        look()


def test_a_status_of_an_earlier_state_is_not_told_as_what_main_does():
    answers = {"uptime": text("uptime-run"), "systemctl": "Running as leader of 4 node Flux instance\n"}
    _, look = looks(answers)
    assert look()[0].text == "Running as leader of 4 node Flux instance"
    answers |= {"uptime": text("uptime-shutdown"), "systemctl": f"{STATUS_PREFIX} shutdown\n"}
    assert look()[0].text == ""


def test_in_cleanup_who_is_to_blame_is_asked_of_the_plugin_that_runs_prologs_and_epilogs():
    answers = {
        "uptime": " 1:1 cleanup 2s,  owner x,  depth 0,  size 4\n",
        "overlay": text("overlay-full"),
        "jobtap": '{"procs":{"ƒ1":{"active_ranks":"2"}}}',
    }
    broker, look = looks(answers)
    look()
    found, asked = drive(broker.peers(), lambda argv: answers[argv[1]])
    assert [(one.rank, one.host) for one in found.holding] == [(2, "picl2")]
    assert asked[-1].argv[1:] == ["jobtap", "query", "perilog.so"]
    answers["jobtap"] = OSError("flux-jobtap: No such file or directory")
    assert drive(broker.peers(), lambda argv: answers[argv[1]])[0].holding == ()
    answers["uptime"] = " 1:1 shutdown 2s,  owner x,  depth 0,  size 4\n"
    look()
    found, _ = drive(broker.peers(), lambda argv: answers[argv[1]])
    assert [one.rank for one in found.holding] == [2, 3], "in SHUTDOWN all that have not said goodbye"


def test_progress_of_a_dump_only_grows():
    lsattr = text("lsattr").replace("statedir-cleanup                        1", "statedir-cleanup  0")
    answers = {"uptime": " 1:1 finalize 2s,  owner x,  depth 0,  size 1\n", "lsattr": lsattr + "content.dump  auto\n"}
    broker, look = looks(answers)
    dump = f"f {broker.began_s + 5} 4096  /var/lib/flux/dump/new.tgz\n"
    answers |= {"systemctl": "flux-dump(1) has archived 700 keys\n", "find": dump}
    found, asked = look()
    assert (found.done, found.progress) == (4796, "700 keys archived, 4.0 KiB in new.tgz")
    assert asked[-1].user == proc.User(1, 1)
    answers["find"] = OSError("no answer")
    assert look()[0].done == 4796


def test_the_newest_dump_of_this_stop_is_complete_when_restore_points_to_it():
    listing = "f 5.0 100  /d/old.tgz\nf 20.5 200  /d/a b.tgz\nl 21.0 7 a b.tgz /d/RESTORE\ngarbage\n"
    listing = listing.replace("a b.tgz /d", "ab.tgz /d").replace("/d/a b.tgz", "/d/ab.tgz")
    found = newest(listing, 10.0, linked=True)
    assert (found.path, found.size, found.complete) == ("/d/ab.tgz", 200, True)
    assert not newest(listing.replace("7 ab.tgz", "7 old.tgz"), 10.0, linked=True).complete
    assert newest(listing, 30.0, linked=True) is None
    assert newest("f 20.5 200  /d/x\n", 10.0, linked=False).complete


def test_where_nobody_can_look_for_the_dump_none_is_missed():
    broker = a_broker()
    broker.attrs = {"content.dump": "/d/x"}
    with pytest.raises(OSError, match="no answer"):
        broker.dump(Said("", "find: no answer within 1s"))
    assert broker.dump(Said("", "find: '/d': No such file or directory")) is None
