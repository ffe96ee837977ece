import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.perilog import names

NUMBERS = st.integers(0, 2**64 - 1)
PLAIN = frozenset("f123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")


@given(NUMBERS)
def test_every_spelling_of_a_job_id_means_the_same_unit(number):
    plain = names.instance(number)
    spellings = [plain, f"ƒ{plain[1:]}", str(number), hex(number), f"0X{number:X}"]
    assert {names.job_number(spelling.encode()) for spelling in spellings} == {number}


def test_a_unit_is_named_as_flux_names_it():
    assert names.unit("epilog", names.job_number("ƒ39firM4HrF".encode())) == "flux-epilog@f39firM4HrF.service"


@given(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode(errors="replace"))))
def test_whatever_is_no_job_id_gets_no_name(raw):
    try:
        number = names.job_number(raw)
    except ValueError as error:
        why = str(error)
        assert "is no job id" in why
        assert "\n" not in why
    else:
        assert 0 <= number < 2**64
        assert PLAIN.issuperset(names.instance(number))


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"-", b"--", b"a-b", b"-f39", b"/", b"../x", b"..", b".", b"*", b"f*", b"[f]", b'";id;"',
        b'x";echo PWNED;"', b"$(id)", b"$HOME",
        b"f39.service", b"f39.target", b"f39 f40", b"f39\n", b"\xff", b"f", b"0x", b"+1", b"-1",
        b"1_0", b" 1", "١".encode(), "²".encode(), b"0b1", b"f0", b"fO", b"fI", b"fl",
        b"18446744073709551616",
        b"0x10000000000000000", b"f" + b"z" * 12, b"9" * 5000,
    ],
)  # fmt: skip
def test_hostile_job_ids_are_refused(raw):
    with pytest.raises(ValueError, match="is no job id"):
        names.job_number(raw)


@given(NUMBERS, st.sampled_from(names.KINDS))
def test_a_unit_name_is_one_that_systemd_takes_as_it_is(number, kind):
    unit = names.unit(kind, number)
    assert unit.endswith(".service")
    assert len(unit) < 64
    assert frozenset(unit) <= PLAIN | frozenset("flux-prologepiloghousekeeping@.service")
