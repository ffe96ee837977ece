"""Whatever people ask of the job manager, and whatever breaks: no model raises, and every line can be written."""

from random import Random

import msgspec
import pytest

from brokerctl.durations import S
from brokerctl.model.puppet import Reaction
from brokerctl.scenario.moments import EVENTS
from brokerctl.settings import Hold, Housekeeping, Perilog
from tests.stage import Story

NAMES = (*EVENTS, "dws-start", "dws-finish", "other")
CONTEXTS = (
    (),
    ("description=dws",),
    ("description=job-manager.epilog", "status=0"),
    ("severity=0", "type=x"),
    ("long=" + "9" * 30,),
)
ABOUT_LINKS = ("cut", "half-open", "heal", "slow")


def instance(random: Random) -> Story:
    """Some instance of Flux, with what may run before and after a job."""
    story = Story(random.choice((1, 2, 4, 7)), policy=random.choice(("flux", "hardened")), cleanup_timeout_ns=10 * S)
    if random.random() < 0.7:
        story.four()
    scripts = {"prolog": {"runs": 1, "rc": random.choice((0, 1))}, "epilog": {"runs": random.choice((1, 4, None))}}
    for name, given in scripts.items():
        if random.random() < 0.6:
            command = story.puppet(name, **given, on={1: Reaction(ignore=True)}).command
            story.fields[name] = Perilog(command=command, per_rank=random.random() < 0.5, cancel_on_exception=True)
    if random.random() < 0.5:
        command = story.puppet("housekeeping", 2).command
        story.fields["housekeeping"] = Housekeeping(command=command, release_after_ns=random.choice((None, 0, S)))
    if random.random() < 0.5:
        story.fields["holds"] = (Hold(name="dws", after_ns=random.choice((None, S)), posts="dws_environment"),)
    story.fields["checkpoint_period_ns"] = random.choice((None, 3 * S))
    return story


def ask_anything(story: Story, random: Random) -> None:
    at, job = random.uniform(1, 25), random.choice("abc")
    what = random.choice(
        ("post-event", "post-event", "cancel", "hold", "release", "housekeeping-kill", "jobs", "status")
    )
    words = (job, random.choice(NAMES), *random.choice(CONTEXTS)) if what == "post-event" else (job, "dws")
    story.ask(at, what, *words)


def break_anything(story: Story, random: Random) -> None:
    rank = random.randrange(story.size)
    kind = random.choice(("crash", "freeze", *(ABOUT_LINKS if rank else ())))
    at = random.uniform(1, 25)
    story.fault(at, kind, rank, delay=1)
    undo = {"crash": "restart", "freeze": "thaw"}.get(kind)
    if undo is not None and random.random() < 0.8:
        story.fault(at + random.uniform(0, 5), undo, rank)


@pytest.mark.parametrize("ten", range(10))
def test_no_model_raises_and_every_line_can_be_written(ten):
    for seed in range(ten * 10, ten * 10 + 10):
        random = Random(seed)
        story = instance(random)
        task = story.puppet("task", random.uniform(1, 9))
        for name in "abc":
            story.job(random.uniform(1, 4), name, task, nodes=random.randint(1, story.size))
        for _ in range(random.randint(1, 12)):
            ask_anything(story, random)
        for _ in range(random.randint(0, 3)):
            break_anything(story, random)
        story.signal(random.uniform(10, 40)).signal(random.uniform(40, 60))
        story.run(undone=True)
        assert story.outcome.kind in {"ended", "stuck"}, f"seed {seed}"
        assert all(msgspec.json.encode(line) for line in story.lines)
