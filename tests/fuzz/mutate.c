/* SPDX-License-Identifier: Apache-2.0 */
/* A driver for fuzz targets that needs no libFuzzer: NAME [--runs N | --seconds N] takes the files of the
 * folder tests/fuzz/seeds/NAME and changes of them, always the same ones; NAME FILE... runs the target on
 * these files alone. The target works in a child process. If that dies or takes long, its input is kept in
 * NAME-found. It does not look at what code an input reaches: that is libFuzzer's. */
#include "config.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { LARGEST = 1 << 14, MOST_SEEDS = 512, PATIENCE = 20 }; /* bytes, files, seconds for one input */

struct input {
    size_t size;
    uint8_t data[LARGEST];
};

/* The input at hand, seen by both processes. */
static struct shared {
    long run;
    struct input input;
} * shared;

static struct input seeds[MOST_SEEDS];
static int n_seeds;

/* Text that the formats under test know. */
static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\ud83d\\ude00",
    "null",
    "true",
    "0",
    "-1",
    "-0",
    "1e308",
    "1e309",
    "0.5",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "\"dtype\":\"F32\"",
    "\"shape\":[1]",
    "\"data_offsets\":[0,4]",
    "\"__metadata__\":{}",
    "\"BF16\"",
    "\"a\":{}",
    "[[[[[[[[",
    "]]]]]]]]",
    "[moe]",
    "[data]\n",
    "\n",
    "=",
    "#",
    "\t",
    "length_buckets = [8, 16]\n",
    "name = \"x\"\n",
    "KiB",
    "inf",
    "nan",
    "SELECT ",
    " FROM metric ",
    " UNION ALL ",
    "WITH RECURSIVE n(i) AS (",
    "PRAGMA ",
    "zeroblob(1000000000)",
    "VACUUM INTO 'x'",
    "--",
    "\xef\xbb\xbf",
    "\xff",
    "\xed\xa0\x80",
};

static uint64_t state;

/* splitmix64 (Steele, Lea, Flood 2014) */
static size_t below(size_t n)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (size_t)((z ^ z >> 31) % n);
}

static void insert(struct input *in, size_t at, const void *bytes, size_t n)
{
    if (n > LARGEST - in->size) n = LARGEST - in->size;
    memmove(in->data + at + n, in->data + at, in->size - at);
    memmove(in->data + at, bytes, n);
    in->size += n;
}

static void erase(struct input *in, size_t at, size_t n)
{
    memmove(in->data + at, in->data + at + n, in->size - at - n);
    in->size -= n;
}

/* A range of at most 64 bytes from `at` on. */
static size_t range(const struct input *in, size_t at)
{
    size_t left = in->size - at, n = 1 + below(64);
    return n < left ? n : left;
}

static void change(struct input *in)
{
    static const uint8_t odd[] = {0, 1, 7, 8, 0x1f, 0x20, '"', '\\', 0x7f, 0x80, 0xc0, 0xff};
    uint8_t piece[64];
    size_t at = below(in->size + 1), n = range(in, at);
    const struct input *other = &seeds[below((size_t)n_seeds)];
    const char *word = words[below(sizeof words / sizeof words[0])];
    switch (below(8)) {
    case 0:
        if (n) in->data[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        if (n) in->data[at] = odd[below(sizeof odd)];
        break;
    case 2: insert(in, at, word, strlen(word)); break;
    case 3:
        erase(in, at, n);
        insert(in, at, word, strlen(word));
        break;
    case 4: erase(in, at, n); break;
    case 5:
        memcpy(piece, in->data + at, n);
        insert(in, below(in->size + 1), piece, n);
        break;
    case 6:
        if (!other->size) break;
        at = below(other->size);
        insert(in, below(in->size + 1), other->data + at, range(other, at));
        break;
    default:
        if (below(8) == 0) in->size = at; /* cut short */
    }
}

/* Input `run`: the seeds as they are first. */
static void make(long run)
{
    state = (uint64_t)run * 0xd1342543de82ef95u + 1;
    shared->run = run;
    shared->input = seeds[run < n_seeds ? (size_t)run : below((size_t)n_seeds)];
    for (size_t i = run < n_seeds ? 0 : 1 + below(8); i > 0; i--) change(&shared->input);
}

/* Exactly as large as the input, so that a read past its end is seen. */
static void try(void)
{
    uint8_t *copy = malloc(shared->input.size ? shared->input.size : 1);
    if (!copy) abort();
    memcpy(copy, shared->input.data, shared->input.size);
    alarm(PATIENCE);
    LLVMFuzzerTestOneInput(copy, shared->input.size);
    alarm(0);
    free(copy);
}

static int read_file(const char *path, struct input *in)
{
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    in->size = fread(in->data, 1, LARGEST, file);
    fclose(file);
    return 1;
}

/* Whether all files of the folder were read. */
static int read_seeds(const char *folder)
{
    char path[4400];
    struct dirent **list;
    int n_files = 0, n = scandir(folder, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.') n_files++;
        if (list[i]->d_name[0] != '.' && n_seeds < MOST_SEEDS) n_seeds += read_file(path, &seeds[n_seeds]);
        free(list[i]);
    }
    if (n >= 0) free(list);
    return n_files == n_seeds;
}

static void work(long runs, long seconds)
{
    time_t end = time(NULL) + seconds;
    for (long run = 0; seconds ? time(NULL) < end : run < runs; run++) {
        make(run);
        try();
    }
    printf("%ld inputs\n", shared->run + 1);
    fflush(stdout);
    exit(0); /* not _exit: a target removes its folder then */
}

static int judge(const char *name, int status)
{
    char path[256];
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    snprintf(path, sizeof path, "%s-found", name);
    FILE *file = fopen(path, "wb");
    if (file) {
        fwrite(shared->input.data, 1, shared->input.size, file);
        fclose(file);
    }
    fprintf(
        stderr, "%s: input %ld of %zu bytes %s; it is kept in %s\n", name, shared->run, shared->input.size,
        WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "takes too long" : "breaks the target", path);
    return 1;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    const char *source = getenv("abs_top_srcdir");
    char folder[4096];
    int timed = argc == 3 && !strcmp(argv[1], "--seconds"), counted = argc == 3 && !strcmp(argv[1], "--runs");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 99;
    if (argc > 1 && !timed && !counted) {
        for (int i = 1; i < argc; i++)
            if (read_file(argv[i], &shared->input)) try();
        return 0;
    }
    snprintf(folder, sizeof folder, "%s/tests/fuzz/seeds/%s", source ? source : ".", name);
    int whole = read_seeds(folder);
    if (!n_seeds || !whole) {
        fprintf(stderr,
                n_seeds ? "%s: %s has a file that cannot be read, or more than MOST_SEEDS files\n"
                        : "%s: no files in %s: set abs_top_srcdir to the source tree\n",
                name, folder);
        return 99;
    }
    int status;
    pid_t child = fork();
    if (child == 0) work(counted ? atol(argv[2]) : 4000, timed ? atol(argv[2]) : 0);
    if (child < 0 || waitpid(child, &status, 0) != child) return 99;
    return judge(name, status);
}
