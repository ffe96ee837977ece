"""The lifecycle's table: every row, both executions of it, and what it must never allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.model.lifecycle import STOPPING, TRANSITIONS, Event, State, compiled, machine, machine_fire

EXECUTIONS = {"compiled": compiled, "machine": machine_fire}

# Written by hand from the documentation of Flux and from recorded runs, not from the table itself.
ROWS = """
builtins-success  load-builtins    join
builtins-fail     load-builtins    unload-builtins
parent-ready      join             config-sync
parent-none       join             config-sync
parent-fail       join             shutdown
sync-success      config-sync      init
sync-none         config-sync      init
sync-fail         config-sync      shutdown
rc1-success       init             quorum
rc1-none          init             quorum
rc1-ignorefail    init             quorum
rc1-fail          init             shutdown
panic             init             shutdown
quorum-full       quorum           run
quorum-fail       quorum           shutdown
panic             quorum           shutdown
rc2-success       run              cleanup
rc2-fail          run              cleanup
shutdown          run              cleanup
parent-fail       run              cleanup
panic             run              shutdown
cleanup-success   cleanup          shutdown
cleanup-none      cleanup          shutdown
cleanup-fail      cleanup          shutdown
children-complete shutdown         finalize
children-none     shutdown         finalize
rc3-success       finalize         goodbye
rc3-none          finalize         goodbye
rc3-fail          finalize         goodbye
goodbye           goodbye          unload-builtins
builtins-done     unload-builtins  exit
builtins-unload-fail unload-builtins exit
"""
EXPECTED = [tuple(row.split()) for row in ROWS.strip().splitlines()]

pairs = [(state, event) for state in State for event in Event]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("event", "old", "new"), EXPECTED)
def test_every_row_leads_where_flux_goes(execution, event, old, new):
    assert EXECUTIONS[execution]()(State(old), Event(event)) is State(new)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_event_that_a_state_does_not_know_changes_nothing(execution):
    fire = EXECUTIONS[execution]()
    known = {(State(old), Event(event)) for event, old, _ in EXPECTED}
    for state, event in pairs:
        if (state, event) not in known:
            assert fire(state, event) is None, (state, event)


@given(st.lists(st.sampled_from(list(Event)), max_size=60))
def test_both_executions_walk_the_same_way(events):
    fires = [make() for make in EXECUTIONS.values()]
    states = [State.LOAD_BUILTINS] * len(fires)
    for event in events:
        answers = [fire(state, event) for fire, state in zip(fires, states, strict=True)]
        assert answers[0] is answers[1]
        states = [answer or state for answer, state in zip(answers, states, strict=True)]


@given(st.lists(st.sampled_from(pairs), max_size=60))
def test_both_executions_answer_alike_wherever_they_are_asked_from(asked):
    fires = [make() for make in EXECUTIONS.values()]
    for state, event in asked:
        assert fires[0](state, event) is fires[1](state, event)


@given(st.data())
def test_a_walk_along_the_table_reaches_exit_and_never_leaves_a_stop(data):
    """Always some event of the row, whichever: the life ends, in at most as many steps as there are states."""
    fire, state, seen = compiled(), State.LOAD_BUILTINS, []
    while TRANSITIONS[state]:
        seen.append(state)
        event = data.draw(st.sampled_from(sorted(TRANSITIONS[state])))
        new = fire(state, event)
        assert new is not None
        if state in STOPPING:
            assert new in STOPPING
        state = new
    assert state is State.EXIT
    assert len(set(seen)) == len(seen) < len(State)


def reachable(start, without=None):
    found, todo = {start}, [start]
    while todo:
        for new in TRANSITIONS[todo.pop()].values():
            if new not in found and new is not without:
                found.add(new)
                todo.append(new)
    return found


def test_every_state_can_be_reached():
    assert reachable(State.LOAD_BUILTINS) == set(State)


@pytest.mark.parametrize("state", State)
def test_exit_can_be_reached_from_every_state(state):
    assert State.EXIT in reachable(state)


def test_exit_is_the_only_dead_state_and_is_written_out():
    assert set(TRANSITIONS) == set(State)
    assert [state for state in State if not TRANSITIONS[state]] == [State.EXIT]


def test_no_event_leads_back_to_a_state_before():
    order = {state: index for index, state in enumerate(State)}
    for old, row in TRANSITIONS.items():
        assert all(order[new] > order[old] for new in row.values())


@pytest.mark.parametrize("state", [state for state in State if state not in STOPPING])
def test_no_stop_goes_without_rc3_but_that_of_a_broker_that_has_no_builtins(state):
    goes_without = State.EXIT in reachable(state, without=State.FINALIZE)
    assert goes_without == (state is State.LOAD_BUILTINS)


def test_rc2_none_is_an_internal_event_and_moves_nothing():
    assert not any(Event.RC2_NONE in row for row in TRANSITIONS.values())


def test_states_and_events_are_their_own_names():
    assert f"{State.RUN}" == "run"
    assert f"{Event.CHILDREN_COMPLETE} in {State.SHUTDOWN}" == "children-complete in shutdown"
    assert all(State(str(state)) is state for state in State)
    assert {State.RUN: 1}["run"] == 1


def test_the_machine_has_exactly_the_rows_of_the_table():
    made = machine()
    rows = {
        (event, transition.source, transition.dest)
        for event in made.events
        for transition in made.get_transitions(trigger=event)
    }
    assert rows == set(EXPECTED)
    assert set(made.states) == {str(state) for state in State}


def test_two_machines_share_no_state():
    one, other = machine_fire(), machine_fire()
    assert one(State.LOAD_BUILTINS, Event.BUILTINS_SUCCESS) is State.JOIN
    assert other(State.LOAD_BUILTINS, Event.BUILTINS_FAIL) is State.UNLOAD_BUILTINS
    assert one(State.JOIN, Event.PARENT_NONE) is State.CONFIG_SYNC
