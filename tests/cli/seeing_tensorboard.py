# SPDX-License-Identifier: Apache-2.0
# seeing_tensorboard.py FOLDER DATABASE: TensorBoard reads from the event files what is in the database.
import os
import sqlite3
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder, database = sys.argv[1:]
database = sqlite3.connect(database)


def scalars(path):
    events = EventAccumulator(path, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events, {tag: [(e.step, bits(e.value)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def bits(value):
    return struct.pack("<f", float("nan") if value is None else value)


def rows(sql, *given):
    found = {}
    for name, step, value in database.execute(sql, given):
        found.setdefault(name, []).append((step, bits(value)))
    return found


training, got = scalars(folder)
wanted = rows("SELECT name, step, value FROM valid_metric ORDER BY attempt, step")
assert wanted and got == wanted, "metrics differ"
times = [e.wall_time for e in training.Scalars("loss")]
assert times == sorted(times) and times[0] > 1e9, times
for kind, n in database.execute("SELECT kind, count(*) FROM event GROUP BY kind"):
    assert len(training.Tensors("event/" + kind)) == n, kind
for (task,) in database.execute("SELECT DISTINCT task FROM valid_eval").fetchall():
    got = scalars(os.path.join(folder, task))[1]
    wanted = rows("SELECT name, step, value FROM valid_eval WHERE task = ? ORDER BY id", task)
    assert wanted and got == wanted, task
