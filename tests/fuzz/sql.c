/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as the SQL of `switchyard metrics`: it is answered or refused, in time, and nothing is written: the
 * database stays as it is, and no file comes beside it. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "metrics/query.h"
#include "metrics/store.h"

static char folder[32];
static struct stat made;
static struct syi_file_id contents;

static struct syi_file_id identify(void)
{
    char *text;
    size_t bytes;
    FUZZ_REQUIRE(syi_file_read("metrics.db", &text, &bytes, NULL) == SY_OK);
    struct syi_file_id id = syi_file_identify(text, bytes);
    syi_free(text);
    return id;
}

static void remove_database(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/metrics.db", folder);
    unlink(path);
    rmdir(folder);
}

/* A folder of the process with a run's database in it, and nothing else. SQL runs there, so that files which it
 * names come there. */
static void make_database(void)
{
    struct syi_store_options options = {.start_step = -1, .config = "[run]\nname = \"x\"\n"};
    struct syi_metric_sink sink;
    snprintf(folder, sizeof folder, "/tmp/sy-fuzz-sql-XXXXXX");
    FUZZ_REQUIRE(mkdtemp(folder) && !chdir(folder));
    atexit(remove_database);
    FUZZ_REQUIRE(syi_store_open("metrics.db", &options, &sink, NULL) == SY_OK);
    for (int step = 1; step <= 5; step++) {
        const int64_t tokens[] = {3, 200}, dropped[] = {step % 2, 0};
        FUZZ_REQUIRE(sink.metric(sink.arg, step, "loss", 1.0 / step, NULL) == SY_OK);
        FUZZ_REQUIRE(sink.routing(sink.arg, step, "encoder/layers_1/mlp", 2, tokens, dropped, NULL) == SY_OK);
    }
    FUZZ_REQUIRE(sink.eval(sink.arg, 5, "g2p/valid", "wer", 0.5, "", NULL) == SY_OK);
    FUZZ_REQUIRE(sink.event(sink.arg, 5, "stop", "done\nafter\t5 steps", NULL) == SY_OK);
    FUZZ_REQUIRE(sink.close(sink.arg, NULL) == SY_OK);
    FUZZ_REQUIRE(!stat("metrics.db", &made));
    contents = identify();
}

static int count_files(void)
{
    int n = 0;
    DIR *here = opendir(".");
    FUZZ_REQUIRE(here != NULL);
    while (readdir(here)) n++;
    closedir(here);
    return n;
}

static void check_unchanged(void)
{
    struct stat now;
    FUZZ_REQUIRE(count_files() == 3); /* with . and .. */
    FUZZ_REQUIRE(!stat("metrics.db", &now) && now.st_size == made.st_size);
    FUZZ_REQUIRE(now.st_mtim.tv_sec == made.st_mtim.tv_sec && now.st_mtim.tv_nsec == made.st_mtim.tv_nsec);
    FUZZ_REQUIRE(!strcmp(identify().sha256, contents.sha256));
}

/* One line, whatever the texts of cells are. */
static int take_line(void *arg, const char *line)
{
    (void)arg;
    FUZZ_REQUIRE(!strchr(line, '\n'));
    return SY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int ready;
    struct sy_error err = {0};
    char *sql = malloc(size + 1);
    FUZZ_REQUIRE(sql);
    int home = open(".", O_RDONLY | O_DIRECTORY);
    FUZZ_REQUIRE(home >= 0);
    if (!ready++) make_database();
    FUZZ_REQUIRE(!chdir(folder));
    memcpy(sql, data, size);
    sql[size] = '\0';
    struct syi_query query = {.sql = sql, .format = SYI_QUERY_TSV, .seconds = 0.2, .bytes = 1 << 20};
    int status = syi_query_run("metrics.db", &query, take_line, NULL, &err);
    FUZZ_REQUIRE(status == SY_OK || (err.code == status && err.text[0] && !strchr(err.text, '\n')));
    FUZZ_REQUIRE(status != SY_EFORMAT && status != SY_EBUSY && status != SY_EIO);
    query.format = SYI_QUERY_COLUMNS;
    query.seconds = 0; /* a machine with other work may take longer the second time */
    if (!status) FUZZ_REQUIRE(syi_query_run("metrics.db", &query, take_line, NULL, NULL) == SY_OK);
    free(sql);
    check_unchanged();
    FUZZ_REQUIRE(!fchdir(home) && !close(home));
    return 0;
}
