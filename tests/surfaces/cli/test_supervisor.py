"""A supervisor restarts workers, gives up if none can start, and exits with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 60

HURRIED = """
import os, signal, sys, time
from pathlib import Path
from postroom.surfaces.cli.commands import supervisor
supervisor._TOO_SOON_S, supervisor._LOOK_S = 0.01, 0.001
folder = Path(sys.argv[1])

def begun(place):
    (folder / f"{place}-{os.getpid()}").touch()
    return len(list(folder.glob(f"{place}-*")))
"""

KILLED_AT_THE_FORK = """
import os, signal, time
from postroom.surfaces.cli.commands import supervisor
fork, parent = os.fork, os.getpid()

def fork_and_be_killed():
    process = fork()
    if process:
        os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.001)
    return process

os.fork = fork_and_be_killed
"""


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it until all processes that might write have exited."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_supervisor_whose_workers_cannot_start_exits_with_their_code(tmp_path: Path) -> None:
    done = run(
        HURRIED + "sys.exit(supervisor.Supervisor(2, lambda p, _: begun(p) and 7).run())",
        str(tmp_path),
    )

    assert 7 == done.returncode
    for place in "01":
        assert 4 <= len(list(tmp_path.glob(f"{place}-*"))) <= 6
    assert "supervisor.ended" in done.stderr


def test_a_supervisor_whose_workers_are_killed_exits_with_128_plus_signal(
    tmp_path: Path,
) -> None:
    work = "lambda p, _: os.kill(os.getpid(), signal.SIGKILL)"
    done = run(HURRIED + f"sys.exit(supervisor.Supervisor(2, {work}).run())", str(tmp_path))

    assert 128 + signal.SIGKILL == done.returncode


def test_a_supervisor_with_one_running_worker_does_not_give_up(tmp_path: Path) -> None:
    """The other worker fails ten times; then the parent is stopped."""
    work = """
def work(place, ready):
    if place == 0:
        ready()
        time.sleep(60)
    if begun(place) == 10:
        os.kill(os.getppid(), signal.SIGTERM)
    return 7

supervisor._MAX_PAUSE_S = 0.02
sys.exit(supervisor.Supervisor(2, work).run())
"""
    done = run(HURRIED + work, str(tmp_path))

    assert 0 == done.returncode, done.stderr
    assert 10 <= len(list(tmp_path.glob("1-*")))


def test_a_successful_start_resets_the_count_of_failures(tmp_path: Path) -> None:
    """The worker starts successfully at every third attempt only."""
    work = """
def work(place, ready):
    tries = begun(place)
    if tries % 3 == 0:
        ready()
    if tries == 12:
        os.kill(os.getppid(), signal.SIGTERM)
    return 7

sys.exit(supervisor.Supervisor(1, work).run())
"""
    done = run(HURRIED + work, str(tmp_path))

    assert 0 == done.returncode, done.stderr
    assert 12 <= len(list(tmp_path.iterdir()))


def test_a_supervisor_in_a_pause_stops_on_a_signal() -> None:
    program = """
import sys
from postroom.surfaces.cli.commands import supervisor
supervisor._TOO_SOON_S = supervisor._MAX_PAUSE_S = 600.0
sys.exit(supervisor.Supervisor(1, lambda *_: print("failing", flush=True) or 7).run())
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            assert any("worker.ended" in line for line in process.stderr)
            os.kill(process.pid, signal.SIGTERM)
            assert 0 == process.wait(PATIENCE_S)
        finally:
            process.kill()


def test_a_worker_exits_if_its_parent_was_killed_during_the_fork() -> None:
    program = (
        KILLED_AT_THE_FORK + "supervisor.Supervisor(1, lambda *_: print('at work') or 0).run()"
    )
    assert "" == run(program).stdout


def test_a_separate_worker_exits_too() -> None:
    program = KILLED_AT_THE_FORK + "supervisor.run_in_child(lambda: print('at work') or 0)"
    assert "" == run(program).stdout
