/* SPDX-License-Identifier: Apache-2.0 */
/* short-writes COUNT COMMAND...: runs the command under ptrace and makes every write of it short: of N bytes,
 * N / 2 are asked for. So the system writes less than the program wanted, in libc and SQLite too, and what is
 * left must be written by further calls. The file COUNT gets the number of calls that were shortened; the exit
 * status is the command's, 77 where processes cannot be traced like that. */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#if defined(__linux__) && defined(__x86_64__)

#    include <signal.h>
#    include <sys/ptrace.h>
#    include <sys/syscall.h>
#    include <sys/user.h>
#    include <sys/wait.h>

enum { SKIP = 77, BROKEN = 99, MOST_THREADS = 4096 };

static pid_t inside[MOST_THREADS]; /* threads between entering a call and leaving it */
static int n_inside;
static long n_short;

/* Whether the stop of a thread at a system call is its entry: entries and exits take turns. */
static int is_entry(pid_t thread)
{
    for (int i = 0; i < n_inside; i++)
        if (inside[i] == thread) {
            inside[i] = inside[--n_inside];
            return 0;
        }
    if (n_inside < MOST_THREADS) inside[n_inside++] = thread;
    return 1;
}

static void shorten(pid_t thread)
{
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread, NULL, &registers)) return;
    if (registers.orig_rax != SYS_write && registers.orig_rax != SYS_pwrite64) return;
    if (registers.rdx < 2) return;
    registers.rdx /= 2;
    if (!ptrace(PTRACE_SETREGS, thread, NULL, &registers)) n_short++;
}

/* What a stopped thread is to be given: 0, or the signal that it stopped for. */
static int look_at(pid_t thread, int status)
{
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        if (is_entry(thread)) shorten(thread);
        return 0;
    }
    /* an event of ptrace, or a new thread's first stop */
    return signal == SIGTRAP || signal == SIGSTOP || status >> 16 ? 0 : signal;
}

/* A thread that ended inside a call leaves nothing for one that gets its number. */
static void forget(pid_t thread)
{
    for (int i = 0; i < n_inside; i++)
        if (inside[i] == thread) inside[i] = inside[--n_inside];
}

static int follow(pid_t command)
{
    for (;;) {
        int status;
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) return BROKEN;
        if (WIFSTOPPED(status)) {
            ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(long)look_at(thread, status));
            continue;
        }
        forget(thread);
        if (thread == command) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

static int report(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return 0;
    fprintf(file, "%ld\n", n_short);
    return fclose(file) == 0;
}

int main(int argc, char **argv)
{
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    int status;
    if (argc < 3) return BROKEN;
    pid_t command = fork();
    if (command == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || raise(SIGSTOP)) _exit(SKIP);
        execvp(argv[2], argv + 2);
        _exit(BROKEN);
    }
    if (command < 0 || waitpid(command, &status, 0) != command) return BROKEN;
    if (!WIFSTOPPED(status) || ptrace(PTRACE_SETOPTIONS, command, NULL, (void *)options)) return SKIP;
    ptrace(PTRACE_SYSCALL, command, NULL, NULL);
    status = follow(command);
    return report(argv[1]) ? status : BROKEN;
}

#else

int main(void)
{
    return 77;
}

#endif
