# SPDX-License-Identifier: Apache-2.0
# progress_terminal.py COLUMNS FEED OUTPUT COMMAND...: runs the command with a terminal of that many columns as standard error,
# and as standard output, too, unless OUTPUT names a file for that. FEED is a number of lines that standard input gets, one
# after the other, 0.6 seconds apart. Prints what the terminal got, with \r as a line end of its own kind: "<CR>".
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time

columns, feed, output, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
stdout = open(output, "wb") if output != "-" else slave
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=slave)
os.close(slave)
shown = b""


def read():
    global shown
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other side is closed
            return
        if not part:
            return
        shown += part


reader = threading.Thread(target=read)
reader.start()
for i in range(feed):
    child.stdin.write(b"abc\n")
    child.stdin.flush()
    time.sleep(0.6)
child.stdin.close()
status = child.wait()
reader.join()
sys.stdout.write(shown.decode().replace("\r\n", "\n").replace("\r", "<CR>\n"))
sys.exit(status)
