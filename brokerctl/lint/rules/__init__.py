"""The rules: one a file, named for what is wrong. A new one is a file here and a bad and a good unit in its tests."""
