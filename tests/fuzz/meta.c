/* SPDX-License-Identifier: Apache-2.0 */
/* meta.json of a checkpoint on any bytes: numbers of what is taken make sense, and written again they are the
 * same. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "train/checkpoint/checkpoint_parts.h"

static char folder[32], file[48];

static void open_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/sy-fuzz-meta-XXXXXX");
    FUZZ_REQUIRE(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/meta.json", folder);
}

static void remove_folder(void)
{
    unlink(file);
    rmdir(folder);
}

static void check_action(const struct syi_action_state *state)
{
    FUZZ_REQUIRE(memchr(state->name, 0, sizeof state->name) != NULL);
    FUZZ_REQUIRE(memchr(state->watches, 0, sizeof state->watches) != NULL);
    FUZZ_REQUIRE(state->n >= 0 && state->n <= SYI_ACTION_NUMBERS);
    for (int i = 0; i < state->n; i++)
        FUZZ_REQUIRE(memchr(state->number[i].name, 0, SYI_ACTION_NUMBER_NAME) != NULL);
}

/* Steps ascend, and no place of the stream leaves 64 bits. */
static void check_holes(const struct syi_holes *holes, int64_t step)
{
    int64_t sum = 0;
    FUZZ_REQUIRE(holes->n >= 0 && holes->n <= SYI_HOLES);
    for (int i = 0; i < holes->n; i++) {
        FUZZ_REQUIRE(holes->hole[i].step <= step && holes->hole[i].batches > 0);
        FUZZ_REQUIRE(holes->hole[i].step > (i ? holes->hole[i - 1].step : -1));
        FUZZ_REQUIRE(!__builtin_add_overflow(sum, holes->hole[i].batches, &sum) && sum <= INT64_MAX / 2);
    }
}

static void check(const struct syi_checkpoint_meta *meta)
{
    FUZZ_REQUIRE(meta->step >= 0 && meta->examples >= 0);
    FUZZ_REQUIRE(meta->best_step >= -1 && meta->best_step <= meta->step);
    FUZZ_REQUIRE(meta->evaluated >= -1 && meta->evaluated <= meta->step);
    FUZZ_REQUIRE(meta->n_actions >= 0 && meta->n_actions <= SYI_CONFIG_PARTS + 1);
    for (int i = 0; i < meta->n_actions; i++) check_action(&meta->action[i]);
    check_holes(&meta->holes, meta->step);
    FUZZ_REQUIRE(strlen(meta->params_sha256) == 64 && strlen(meta->state_sha256) == 64);
}

/* What was read is written, read and written again: the same. */
static void write_twice(const struct syi_checkpoint_meta *meta)
{
    struct syi_checkpoint_meta again;
    struct sy_error err = {0};
    char *first, *second;
    size_t bytes, second_bytes;
    FUZZ_REQUIRE(syi_checkpoint_meta_write(folder, meta, NULL, &err) == SY_OK);
    FUZZ_REQUIRE(syi_file_read(file, &first, &bytes, &err) == SY_OK);
    FUZZ_REQUIRE(syi_checkpoint_meta_read(folder, &again, &err) == SY_OK);
    FUZZ_REQUIRE(syi_checkpoint_meta_write(folder, &again, NULL, &err) == SY_OK);
    FUZZ_REQUIRE(syi_file_read(file, &second, &second_bytes, &err) == SY_OK);
    FUZZ_REQUIRE(bytes == second_bytes && !memcmp(first, second, bytes));
    syi_free(first);
    syi_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct syi_checkpoint_meta meta;
    struct sy_error err = {0};
    open_folder();
    FUZZ_REQUIRE(syi_file_write(file, (const char *)data, size, NULL) == SY_OK);
    if (syi_checkpoint_meta_read(folder, &meta, &err)) {
        FUZZ_REQUIRE((err.code == SY_EFORMAT || err.code == SY_EUNSUPPORTED) && err.text[0]);
    } else {
        check(&meta);
        write_twice(&meta);
    }
    remove_folder();
    return 0;
}
