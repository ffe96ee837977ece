"""Prolog, epilog and housekeeping in systemd units of their own.

Everything here runs once per job and node, so it imports little: `typing`, `re`, `tomllib`, `dataclasses` or `decimal`
would each cost more than the rest of the helper.
"""
