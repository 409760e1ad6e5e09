/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of `switchyard top`, by the escape sequences that every terminal of today has. Signals end the
 * waiting, never more: whoever waits closes the terminal. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/top/top.h"

#define ENTER "\033[?1049h\033[?25l" /* alternate screen, no cursor */
#define LEAVE "\033[0m\033[?25h\033[?1049l"

static const int endings[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static struct {
    int open, has_keys; /* standard input is a terminal, too */
    struct termios before;
    sigset_t mask; /* of signals before */
} terminal;
static volatile sig_atomic_t ended, resized;

static void note(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else
        ended = 1;
}

/* Whether the terminal takes output, now or within a second. */
static int takes_output(void)
{
    return poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, 1000) > 0;
}

/* Signals come meanwhile: a terminal that takes no output holds a write for as long as it likes. */
static int write_all(const char *text, size_t bytes, struct sy_error *err)
{
    sigset_t blocked;
    int status = SY_OK;
    sigprocmask(SIG_SETMASK, &terminal.mask, &blocked);
    while (bytes && !ended && !status) {
        ssize_t put = write(STDOUT_FILENO, text, bytes);
        if (put > 0)
            text += put, bytes -= (size_t)put;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            (void)takes_output();
        else if (errno != EINTR)
            status = syi_error_system(err, "cannot write to the terminal");
    }
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    return status;
}

/* They come only while wait and write_all let them: none is lost between a look at its mark and the waiting. */
static void take_signals(void)
{
    struct sigaction action = {.sa_handler = note};
    sigset_t block;
    sigemptyset(&block);
    sigemptyset(&action.sa_mask);
    sigaddset(&block, SIGWINCH);
    for (size_t i = 0; i < SYI_COUNT(endings); i++) sigaddset(&block, endings[i]);
    sigprocmask(SIG_BLOCK, &block, &terminal.mask);
    sigaction(SIGWINCH, &action, NULL);
    for (size_t i = 0; i < SYI_COUNT(endings); i++) sigaction(endings[i], &action, NULL);
}

/* Keys come at once and are not shown. Ctrl-Z would leave the screen as it is: it is a key like any other. */
static void take_keys(void)
{
    struct termios raw;
    terminal.has_keys = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &terminal.before);
    if (!terminal.has_keys) return;
    raw = terminal.before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

int cli_top_terminal_open(struct sy_error *err)
{
    take_signals();
    take_keys();
    terminal.open = 1;
    return write_all(ENTER, sizeof ENTER - 1, err);
}

void cli_top_terminal_close(void)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    if (!terminal.open) return;
    terminal.open = 0;
    /* a terminal that is gone needs nothing, one that takes nothing holds nobody up */
    ssize_t lost = takes_output() ? write(STDOUT_FILENO, LEAVE, sizeof LEAVE - 1) : 0;
    (void)lost;
    if (terminal.has_keys) tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
    sigaction(SIGWINCH, &plain, NULL); /* those that end the program have ended it: they do no more harm */
}

void cli_top_terminal_size(struct cli_top_size *size)
{
    struct winsize window;
    size->width = 80;
    size->height = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) || !window.ws_col || !window.ws_row) return;
    size->width = window.ws_col < 1000 ? window.ws_col : 1000;
    size->height = window.ws_row < 1000 ? window.ws_row : 1000;
}

/* Line over line, each cleared to its end, so nothing flickers. The last line has no line feed: it would scroll. */
int cli_top_terminal_show(const char *frame, struct sy_error *err)
{
    struct syi_text text = {0};
    syi_text_puts(&text, "\033[H");
    for (const char *line = frame; *line;) {
        size_t length = strcspn(line, "\n");
        if (line != frame) syi_text_puts(&text, "\r\n");
        syi_text_append(&text, line, length);
        syi_text_puts(&text, "\033[K");
        line += length + (line[length] == '\n');
    }
    syi_text_puts(&text, "\033[J");
    int status = syi_text_status(&text, err);
    if (!status) status = write_all(text.data, text.length, err);
    syi_text_free(&text);
    return status;
}

/* Keys that are there: 1 when q is among them. An input that ended is not looked at again. */
static int read_keys(void)
{
    char keys[64];
    ssize_t got = read(STDIN_FILENO, keys, sizeof keys);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) terminal.has_keys = 0;
    for (ssize_t i = 0; i < got; i++)
        if (keys[i] == 'q' || keys[i] == 'Q') return 1;
    return 0;
}

enum cli_top_wake cli_top_terminal_wait(double seconds)
{
    double end = syi_seconds() + seconds;
    for (;;) {
        double left = end - syi_seconds();
        if (ended) return CLI_TOP_QUIT;
        if (resized) {
            resized = 0;
            return CLI_TOP_RESIZED;
        }
        if (left <= 0) return CLI_TOP_TIME;
        if (left > 1e6) left = 1e6; /* any time_t holds it; what is left is waited for in the next turn */
        time_t whole = (time_t)left;
        struct timespec time = {.tv_sec = whole, .tv_nsec = (long)((left - (double)whole) * 1e9)};
        struct pollfd input = {.fd = terminal.has_keys ? STDIN_FILENO : -1, .events = POLLIN};
        if (ppoll(&input, 1, &time, &terminal.mask) > 0 && read_keys()) return CLI_TOP_QUIT;
    }
}
