# SPDX-License-Identifier: Apache-2.0
# seeing_terminal.py PROGRAM RUN_DIR HOW: `switchyard top` in a terminal of its own (a pty), ended by HOW: q, ctrl-c, a
# signal's name; resize: its window becomes small first; gone: its database goes away and comes back first; forever: by q,
# with frames that are further apart than a time_t counts; stopped: by a signal while its terminal takes no output. Checks
# that it ends well and leaves the terminal as it was.
import atexit
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

program, run, how = sys.argv[1:]
master, slave = pty.openpty()
output = b""
status = None


def set_window(rows, columns):
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(text, start=0):
    """Reads until text comes after start, for 20 seconds at most."""
    global output
    end = time.time() + 20
    while text not in output[start:]:
        assert time.time() < end, "%r did not come: %r" % (text, output[-400:])
        if select.select([master], [], [], 0.1)[0]:
            output += os.read(master, 65536)


set_window(20, 90)
before = termios.tcgetattr(slave)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.execv(program, [program, "top", run, "--every", "1e19" if how == "forever" else "0.1"])
atexit.register(lambda: status is None and os.kill(child, signal.SIGKILL))
read_until(b"\033[?1049h")  # the alternate screen
read_until(b"\033[J")  # a whole frame
if how in ("q", "forever"):
    os.write(master, b"xq")
elif how == "ctrl-c":
    os.write(master, b"\003")
elif how == "resize":
    start = len(output)
    set_window(5, 30)
    os.kill(child, signal.SIGWINCH)
    read_until(b"\033[J", start)
    start = len(output)
    read_until(b"\033[J", start)
    frame = output[start:].split(b"\033[H")[-1]
    assert frame.count(b"\r\n") <= 4, frame
    os.write(master, b"q")
elif how == "gone":
    os.rename(run + "/metrics.db", run + "/away")
    read_until(b"there is no")
    os.rename(run + "/away", run + "/metrics.db")
    read_until(b"\033[J", len(output))
    os.write(master, b"q")
elif how == "stopped":
    termios.tcflow(slave, termios.TCOOFF)
    time.sleep(0.3)  # now it writes a frame, and waits
    os.kill(child, signal.SIGTERM)
else:
    os.kill(child, getattr(signal, how))
if how != "stopped":
    read_until(b"\033[?1049l")
end = time.time() + 20
while status is None:
    ended, code = os.waitpid(child, os.WNOHANG)
    status = code if ended else None
    assert time.time() < end, "it does not end"
    time.sleep(0.01)
assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, status
assert how == "stopped" or output.rstrip().endswith(b"\033[?25h\033[?1049l"), output[-100:]
assert termios.tcgetattr(slave) == before, "the terminal's settings differ"
