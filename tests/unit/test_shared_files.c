/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank reads for others: bytes in pieces, indexes of datasets, copies on a node's disk, and which ranks are a
 * node. */
#include "config.h"

#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "base/compress.h"
#include "base/held_files.h"
#include "comm/comm.h"
#include "data/staging.h"
#include "data/task.h"
#include "data_support.h"
#include "train/launch/node.h"
#include "train/trainer/rank_log.h"

static char folder[4200];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s", fresh_path("x"));
    *strrchr(folder, '/') = 0;
    unsetenv("SWITCHYARD_NODE_RANKS");
}

static void remove_folder(void)
{
    char command[4300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert(system(command) == 0);
}

static const char *at(const char *name)
{
    static char path[4600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

TestSuite(shared_files, .init = make_folder, .fini = remove_folder);

/* ---- bytes ---- */

enum { BYTES = (5 << 19) + 3 }; /* two pieces, a half and a part of a word */

static int share_bytes(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    unsigned char *data = malloc(BYTES + 1);
    (void)arg;
    for (size_t i = 0; i < BYTES; i++) data[i] = (unsigned char)(comm->rank ? 0xee : i * 7 + i / 251);
    data[BYTES] = 0xdd;
    int status = syi_comm_share(comm, data, BYTES, err);
    for (size_t i = 0; i < BYTES && !status; i++)
        if (data[i] != (unsigned char)(i * 7 + i / 251))
            status = syi_error(err, SY_EINTERNAL, "byte %zu of rank %d", i, comm->rank);
    if (!status && data[BYTES] != 0xdd) status = syi_error(err, SY_EINTERNAL, "a byte too many");
    free(data);
    return status;
}

Test(shared_files, bytes_of_any_number)
{
    struct sy_error err = {0};
    cr_assert(syi_comm_thread_run(3, share_bytes, NULL, &err) == SY_OK, "%s", err.text);
}

Test(shared_files, files_are_held_by_name)
{
    const char *text;
    size_t bytes;
    cr_assert(!syi_held_find("a", &text, &bytes));
    cr_assert(syi_held_add("a", "one\0two", 7, NULL) == SY_OK && syi_held_add("b", "", 0, NULL) == SY_OK);
    cr_assert(syi_held_add("a", "another", 7, NULL) == SY_OK);
    cr_assert(syi_held_find("a", &text, &bytes) && bytes == 7 && !memcmp(text, "one\0two", 8));
    cr_assert(syi_held_find("b", &text, &bytes) && bytes == 0);
    syi_held_free();
    cr_assert(!syi_held_find("a", &text, &bytes));
}

/* ---- nodes ---- */

static int find_node(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    return syi_node_find(comm, (struct syi_node *)arg + comm->rank, err);
}

static void check_node(struct syi_node node, struct syi_node want)
{
    cr_expect(!memcmp(&node, &want, sizeof node), "node %d of %d, first %d, place %d of %d, largest %d",
              node.number, node.nodes, node.first, node.place, node.ranks, node.largest);
}

Test(shared_files, ranks_of_a_node)
{
    struct syi_node node[5];
    struct sy_error err = {0};
    cr_assert(syi_comm_thread_run(5, find_node, node, &err) == SY_OK, "%s", err.text);
    check_node(node[3], (struct syi_node){.nodes = 1, .place = 3, .ranks = 5, .largest = 5});
    setenv("SWITCHYARD_NODE_RANKS", "2", 1);
    cr_assert(syi_comm_thread_run(5, find_node, node, &err) == SY_OK, "%s", err.text);
    check_node(node[0], (struct syi_node){.nodes = 3, .ranks = 2, .largest = 2});
    check_node(node[3], (struct syi_node){1, 3, .first = 2, .place = 1, .ranks = 2, .largest = 2});
    check_node(node[4], (struct syi_node){2, 3, .first = 4, .place = 0, .ranks = 1, .largest = 2});
    setenv("SWITCHYARD_NODE_RANKS", "2x", 1);
    cr_assert(syi_comm_thread_run(2, find_node, node, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "SWITCHYARD_NODE_RANKS=2x"), "%s", err.text);
}

/* One rank more than have files of their own. */
Test(shared_files, logs_of_many_ranks)
{
    struct syi_rank rank = {.rank = 64, .ranks = SYI_RANK_LOG_MOST, .node = {.number = 3, .nodes = 4}};
    struct syi_rank_log log;
    char *text;
    size_t bytes;
    cr_assert(syi_mesh_new(&rank.mesh, 65, 65, 1, 1, 0, NULL) == SY_OK);
    cr_assert(syi_rank_log_open(&log, folder, &rank, SYI_LOG_RANKS_FIRST, NULL) == SY_OK && !log.file);
    cr_assert(syi_rank_log_open(&log, folder, &rank, SYI_LOG_RANKS_ALL, NULL) == SY_OK);
    syi_rank_log_close(&log);
    cr_assert(!access(at("ranks/rank-64.log"), F_OK) && access(at("ranks/node-3.log"), F_OK));
    rank.ranks++;
    cr_assert(syi_rank_log_open(&log, folder, &rank, SYI_LOG_RANKS_ALL, NULL) == SY_OK);
    syi_rank_log_say(&log, "a line");
    syi_rank_log_close(&log);
    cr_assert(syi_file_read(at("ranks/node-3.log"), &text, &bytes, NULL) == SY_OK);
    cr_assert(strstr(text, " rank 64: rank 64 of 65 on host ") && strstr(text, " rank 64: a line\n"), "%s",
              text);
    syi_free(text);
}

/* ---- datasets ---- */

static void put_packed(const char *name, const char *text)
{
    void *packed;
    size_t n;
    cr_assert(syi_compress(SYI_COMPRESSION_GZIP, 3, text, strlen(text), &packed, &n, NULL) == SY_OK);
    FILE *file = fopen(at(name), "wb");
    cr_assert(file && fwrite(packed, 1, n, file) == n && fclose(file) == 0);
    syi_free(packed);
}

/* What a "rank" sends is kept, and what another asks for is taken from it, in this order. */
struct wire {
    struct syi_text text;
    size_t at;
};

static int send(void *arg, void *data, size_t bytes, struct sy_error *err)
{
    struct wire *w = arg;
    syi_text_append(&w->text, data, bytes);
    return syi_text_status(&w->text, err);
}

static int take(void *arg, void *data, size_t bytes, struct sy_error *err)
{
    struct wire *w = arg;
    if (w->at + bytes > w->text.length) return syi_error(err, SY_EINTERNAL, "more than was sent");
    memcpy(data, w->text.data + w->at, bytes);
    w->at += bytes;
    return SY_OK;
}

/* Two compressed files of two lines each: unpacked, with an index file. */
struct example_files {
    struct syi_config *config;
    struct syi_vocabularies vocabularies;
    struct syi_example_form form;
    char pattern[4600], cache[4600];
};

static void open_files(struct example_files *f, struct syi_dataset *d)
{
    struct sy_error err = {0};
    put_packed("a.gz", "ab\tc\nd\tef\n");
    put_packed("b.gz", "ghi\tj\nk\tlmn\n");
    snprintf(f->pattern, sizeof f->pattern, "%s", at("*.gz"));
    snprintf(f->cache, sizeof f->cache, "%s", at("cache"));
    f->config = tsv_config(f->pattern, 8, 8);
    f->vocabularies = byte_vocabularies();
    cr_assert(syi_example_form_make(&f->form, f->config, &f->config->task.part[0], &f->vocabularies, &err) ==
              SY_OK);
    struct syi_dataset_place place = {.cache = f->cache};
    cr_assert(syi_dataset_open(d, &f->form, f->pattern, &place, &err) == SY_OK, "%s", err.text);
    cr_assert(d->counts.entries == 4 && !d->entry && d->index_path);
}

/* The last example, of the second file. */
static void check_last(struct syi_dataset *d)
{
    struct syi_dataset_entry entry;
    struct syi_ids inputs = {0}, targets = {0};
    struct sy_error err = {0};
    int status = syi_dataset_entry(d, 3, &entry, &err);
    if (!status) status = syi_dataset_read(d, &entry, 0, &inputs, &targets, &err);
    cr_assert(status == SY_OK, "%s", err.text);
    cr_assert(inputs.n == 2 && inputs.id[0] == 'k' + 3 && targets.n == 4 && targets.id[2] == 'n' + 3);
    syi_ids_free(&inputs);
    syi_ids_free(&targets);
}

/* of_file: the index is too large to be held by every rank. */
static void check_shared(int of_file)
{
    struct example_files f;
    struct syi_dataset first, other;
    struct wire wire = {0};
    struct sy_error err = {0};
    struct syi_share to = {.first = 1, .bytes = send, .arg = &wire}, from = {.bytes = take, .arg = &wire};
    struct syi_dataset_place place = {.share = &from};
    open_files(&f, &first);
    if (of_file) first.counts.entries = SYI_DATASET_SMALL;
    cr_assert(syi_dataset_share(&first, &to, &err) == SY_OK, "%s", err.text);
    cr_assert((first.entry == NULL) == of_file);
    remove(at("a.gz"));
    remove(at("b.gz"));
    cr_assert(syi_dataset_open(&other, &f.form, "nothing", &place, &err) == SY_OK, "%s", err.text);
    cr_assert(wire.at == wire.text.length && (other.entry == NULL) == of_file && other.counts.entries == 4);
    cr_assert_str_eq(other.id.sha256, first.id.sha256);
    cr_assert_str_eq(other.source.pattern, f.pattern);
    cr_assert(other.source.n == 2 && strstr(other.source.file[1].path, "b.gz"));
    check_last(&other);
    syi_dataset_close(&other);
    if (of_file) {
        wire.at = 0;
        remove(first.index_path);
        cr_assert(syi_dataset_open(&other, &f.form, "nothing", &place, &err) == SY_ENOENT);
        cr_assert(strstr(err.text, "rank 0 made this index"), "%s", err.text);
    }
    syi_dataset_close(&first);
    syi_text_free(&wire.text);
    free(f.config);
}

Test(shared_files, a_dataset_is_read_once)
{
    if (!strstr(syi_compression_libraries(), "gzip")) cr_skip_test("this build has no zlib");
    check_shared(0);
    check_shared(1);
}

/* What was left of an index when its process was killed goes, though there is a whole one by now. */
Test(shared_files, an_index_that_was_never_finished)
{
    struct example_files f;
    struct syi_dataset d;
    struct syi_dataset_place place = {.cache = f.cache};
    struct utimbuf long_ago = {1, 1};
    if (!strstr(syi_compression_libraries(), "gzip")) cr_skip_test("this build has no zlib");
    open_files(&f, &d);
    char *left = syi_format("%s.1-1.tmp", d.index_path);
    cr_assert(left && !fclose(fopen(left, "w")) && !utime(left, &long_ago));
    syi_dataset_close(&d);
    cr_assert(syi_dataset_open(&d, &f.form, f.pattern, &place, NULL) == SY_OK);
    cr_assert(access(left, F_OK) != 0);
    syi_free(left);
    syi_dataset_close(&d);
    free(f.config);
}

Test(shared_files, a_task_is_read_once)
{
    struct example_files f = {.config = NULL};
    struct syi_task task, other = {0};
    struct wire wire = {0};
    struct sy_error err = {0};
    struct syi_share to = {.first = 1, .bytes = send, .arg = &wire}, from = {.bytes = take, .arg = &wire};
    const char *path = write_fresh("t.tsv", "a\tb\nc\td\ne\tf\n", 12);
    f.config = tsv_config(path, 8, 8);
    cr_assert(syi_example_form_make(&f.form, f.config, &f.config->task.part[0], NULL, &err) == SY_OK);
    cr_assert(syi_task_load(&task, &f.form, path, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_task_share(&task, &to, &err) == SY_OK && syi_task_share(&other, &from, &err) == SY_OK);
    cr_assert(other.n_examples == 3 && other.n_lines == 3 && wire.at == wire.text.length);
    cr_assert_str_eq(other.path, task.path);
    cr_assert_str_eq(other.id.sha256, task.id.sha256);
    cr_assert(!strncmp(syi_task_target(&other, 2).text, "f", 1));
    syi_task_free(&task);
    syi_task_free(&other);
    syi_text_free(&wire.text);
    remove_path(path);
    free(f.config);
}

/* ---- copies ---- */

static void check_folder(const char *text, const char *want)
{
    struct syi_staging staging;
    struct sy_error err = {0};
    int status = syi_staging_open(&staging, text, &err);
    cr_assert(status == (*want == '/' ? SY_OK : SY_EINVAL), "%s: %s", text, err.text);
    cr_assert(strstr(*want == '/' ? staging.folder : err.text, want), "%s: %s", text, err.text);
    if (*want == '/') cr_assert_str_eq(staging.folder, want);
    syi_staging_close(&staging);
}

Test(shared_files, variables_in_a_folder)
{
    setenv("SY_PLACE", "/disk", 1);
    setenv("SY_EMPTY", "", 1);
    check_folder("/a/b", "/a/b");
    check_folder("$SY_PLACE", "/disk");
    check_folder("${SY_PLACE}2/$SY_PLACE/c", "/disk2//disk/c");
    check_folder("$SY_EMPTY/a", "SY_EMPTY is not set");
    check_folder("/a/$SY_NOWHERE", "SY_NOWHERE is not set");
    check_folder("/a$", "a variable's name");
    check_folder("${SY_PLACE", "a variable's name");
}

Test(shared_files, copies_of_files_and_index)
{
    struct example_files f;
    struct syi_dataset d;
    struct syi_staging staging;
    struct sy_error err = {0};
    if (!strstr(syi_compression_libraries(), "gzip")) cr_skip_test("this build has no zlib");
    open_files(&f, &d);
    cr_assert(syi_staging_open(&staging, at("disk/own"), &err) == SY_OK);
    cr_assert(syi_staging_copy(&staging, &d, &err) == SY_OK, "%s", err.text);
    cr_assert(staging.files == 3 && staging.there == 0 && staging.bytes > 22);
    cr_assert(syi_staging_copy(&staging, &d, &err) == SY_OK && staging.files == 3 && staging.there == 3);
    cr_assert(syi_staging_use(&staging, &d, &err) == SY_OK, "%s", err.text);
    char command[9400];
    snprintf(command, sizeof command, "rm -r '%s' '%s'/*.gz", f.cache, folder);
    cr_assert(system(command) == 0);
    cr_assert(syi_dataset_open_index(&d, &err) == SY_OK, "%s", err.text);
    check_last(&d);
    cr_assert(strstr(d.source.file[1].path, "b.gz") && strstr(d.index_path, "disk/own"));
    syi_staging_close(&staging);
    syi_dataset_close(&d);
    free(f.config);
}

/* A copy that another process wrote half, and one that is not there. */
Test(shared_files, copies_that_are_not_whole)
{
    struct example_files f;
    struct syi_dataset d;
    struct syi_staging staging;
    struct sy_error err = {0};
    if (!strstr(syi_compression_libraries(), "gzip")) cr_skip_test("this build has no zlib");
    open_files(&f, &d);
    cr_assert(syi_staging_open(&staging, at("disk"), &err) == SY_OK);
    cr_assert(syi_staging_copy(&staging, &d, &err) == SY_OK);
    char *copy = syi_format("%s/%s", staging.folder, strrchr(d.source.file[0].readable, '/') + 1);
    cr_assert(copy && truncate(copy, 3) == 0);
    cr_assert(syi_staging_copy(&staging, &d, &err) == SY_OK && staging.files == 4, "%s", err.text);
    cr_assert(remove(copy) == 0);
    cr_assert(syi_staging_use(&staging, &d, &err) == SY_ENOENT);
    cr_assert(strstr(err.text, "first rank of this node"), "%s", err.text);
    check_last(&d); /* from where it was read before */
    syi_free(copy);
    syi_staging_close(&staging);
    syi_dataset_close(&d);
    free(f.config);
}
