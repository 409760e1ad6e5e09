/* SPDX-License-Identifier: Apache-2.0 */
/* The TSV reader on any bytes: examples of what it takes lie inside the text, hold no tab or line end, and each
 * belongs to the one item that has its input. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "data/task.h"
#include "fuzz.h"

static void check_span(const struct syi_task *task, struct syi_span span)
{
    const char *begin = task->text.data, *end = begin + task->text.length;
    FUZZ_REQUIRE(span.bytes > 0 && span.text >= begin && span.text + span.bytes <= end);
    FUZZ_REQUIRE(!memchr(span.text, '\t', span.bytes) && !memchr(span.text, '\n', span.bytes) &&
                 !memchr(span.text, 0, span.bytes));
}

static void check_items(const struct syi_task *task)
{
    struct syi_items items;
    int32_t seen = 0;
    FUZZ_REQUIRE(syi_items_build(&items, task, NULL) == SY_OK);
    for (int32_t item = 0; item < items.n_items; item++) {
        struct syi_span input = syi_task_input(task, items.examples[items.first[item]]);
        FUZZ_REQUIRE(items.first[item + 1] > items.first[item]);
        for (int32_t i = items.first[item]; i < items.first[item + 1]; i++, seen++) {
            struct syi_span same = syi_task_input(task, items.examples[i]);
            FUZZ_REQUIRE(items.item_of[items.examples[i]] == item);
            FUZZ_REQUIRE(same.bytes == input.bytes && !memcmp(same.text, input.text, input.bytes));
        }
    }
    FUZZ_REQUIRE(seen == task->n_examples);
    syi_items_free(&items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *file; /* without a name; stays open */
    char path[32];
    struct syi_task task;
    struct sy_error err = {0};
    static const struct syi_task_part part = {.format = SYI_FORMAT_TSV};
    struct syi_example_form form = {.task = &part, .format = syi_record_format(SYI_FORMAT_TSV)};
    FUZZ_REQUIRE(!syi_template_parse(&form.inputs, "{input}", NULL));
    FUZZ_REQUIRE(!syi_template_parse(&form.targets, "{target}", NULL));
    if (!file) file = tmpfile();
    FUZZ_REQUIRE(file && ftruncate(fileno(file), 0) == 0);
    FUZZ_REQUIRE(pwrite(fileno(file), data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(file));
    if (syi_task_load(&task, &form, path, &err)) {
        FUZZ_REQUIRE(err.code == SY_EFORMAT && err.text[0]);
        return 0;
    }
    FUZZ_REQUIRE(task.n_examples > 0 && task.id.bytes == (int64_t)size);
    for (int32_t i = 0; i < task.n_examples; i++) {
        check_span(&task, syi_task_input(&task, i));
        check_span(&task, syi_task_target(&task, i));
    }
    check_items(&task);
    syi_task_free(&task);
    return 0;
}
