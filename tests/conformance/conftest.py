"""The scenarios beside the recordings are compared with them by tests; they are no tests of their own."""

collect_ignore_glob = ["scenarios/*.toml"]
