/* SPDX-License-Identifier: Apache-2.0 */
/* A function in a process of its own: what it takes is given back whole, and its peak of memory is its own.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench/bench.h"

/* What comes before the result. */
struct message {
    int status;
    struct sy_error err;
};

static int transfer(int fd, void *data, size_t bytes, int sends)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = sends ? write(fd, (const char *)data + done, bytes - done)
                          : read(fd, (char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        done += (size_t)n;
    }
    return 1;
}

/* _exit: what the parent has registered for its end is the parent's. */
static void child(int fd, int (*fn)(void *arg, void *result, struct sy_error *err), void *arg, void *result,
                  size_t bytes)
{
    struct message message = {0};
    message.status = fn(arg, result, &message.err);
    int sent = transfer(fd, &message, sizeof message, 1) && transfer(fd, result, bytes, 1);
    _exit(sent ? 0 : 1);
}

static int receive(int fd, pid_t pid, void *result, size_t bytes, struct sy_error *err)
{
    struct message message;
    int how = 0;
    int complete = transfer(fd, &message, sizeof message, 0) && transfer(fd, result, bytes, 0);
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) continue;
    if (!complete)
        return syi_error(err, SY_EINTERNAL, "a measuring process ended without a result (%s %d)",
                         WIFSIGNALED(how) ? "signal" : "status",
                         WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    if (message.status) return syi_error(err, message.status, "%s", message.err.text);
    return SY_OK;
}

int bench_in_child(int (*fn)(void *arg, void *result, struct sy_error *err), void *arg, void *result,
                   size_t bytes, struct sy_error *err)
{
    int fd[2];
    if (pipe(fd)) return syi_error_system(err, "a pipe to a measuring process");
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        int status = syi_error_system(err, "a measuring process cannot be started");
        close(fd[0]);
        close(fd[1]);
        return status;
    }
    if (!pid) {
        close(fd[0]);
        child(fd[1], fn, arg, result, bytes);
    }
    close(fd[1]);
    int status = receive(fd[0], pid, result, bytes, err);
    close(fd[0]);
    return status;
}
