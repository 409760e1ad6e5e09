/* SPDX-License-Identifier: Apache-2.0 */
/* Loading TSV tasks: what is legal, what is refused and where, and grouping by input. */
#include "config.h"

#include "data/batch.h" /* SYI_MAX_LENGTH */
#include "data/task.h"
#include "data_support.h"

static int load(struct syi_task *task, const char *text, size_t bytes, struct sy_error *err)
{
    const char *path = write_fresh("task.tsv", text, bytes);
    struct syi_example_form form = tsv_form();
    int status = syi_task_load(task, &form, path, err);

    remove_path(path);
    return status;
}

static int is(struct syi_span span, const char *text)
{
    return span.bytes == strlen(text) && memcmp(span.text, text, span.bytes) == 0;
}

Test(data_task, reads_lines_and_line_ends)
{
    static const char text[] = "cat\tK AE T\r\ndog\tD AO G\n\xc3\xa9t\xc3\xa9\te t e";
    struct sy_error err = {0};
    struct syi_task task;

    cr_assert(load(&task, text, sizeof(text) - 1, &err) == SY_OK, "%s", err.text);
    cr_assert(task.n_examples == 3 && task.n_lines == 3);
    cr_assert(is(syi_task_input(&task, 0), "cat") && is(syi_task_target(&task, 0), "K AE T"));
    cr_assert(is(syi_task_input(&task, 2), "\xc3\xa9t\xc3\xa9") && is(syi_task_target(&task, 2), "e t e"));
    syi_task_free(&task);
}

/* As old Macs and some exports write them, with a byte order mark: the first input is that of its file's first
 * line, whatever the editor. */
Test(data_task, marks_and_carriage_returns)
{
    static const char *const texts[] = {"\xef\xbb\xbf"
                                        "a\t1\rb\t2\t3\r",
                                        "a\t1\rb\t2\t3",
                                        "\xef\xbb\xbf"
                                        "a\t1\r\nb\t2\t3\r\n",
                                        "\xef\xbb\xbf"
                                        "a\t1\nb\t2\t3"};
    struct sy_error err = {0};
    struct syi_task task;

    for (size_t i = 0; i < SYI_COUNT(texts); i++) {
        cr_assert(load(&task, texts[i], strlen(texts[i]), &err) == SY_OK, "text %zu: %s", i, err.text);
        cr_assert(task.n_examples == 3 && task.n_lines == 2, "text %zu", i);
        cr_expect(is(syi_task_input(&task, 0), "a") && is(syi_task_target(&task, 0), "1"), "text %zu", i);
        cr_expect(is(syi_task_input(&task, 2), "b") && is(syi_task_target(&task, 2), "3"), "text %zu", i);
        syi_task_free(&task);
    }
}

Test(data_task, groups_references)
{
    static const char text[] = "a\t1\nb\t2\t3\na\t4\nc\t5\nb\t6\n";
    static const char *const inputs[] = {"a", "b", "c"}, *const references[] = {"14", "236", "5"};
    struct syi_items items;
    struct syi_task task;

    cr_assert(load(&task, text, sizeof(text) - 1, NULL) == SY_OK);
    cr_assert(task.n_examples == 6 && task.n_lines == 5);
    cr_assert(syi_items_build(&items, &task, NULL) == SY_OK);
    cr_assert(items.n_items == 3);
    for (int item = 0; item < 3; item++) {
        cr_assert(items.first[item + 1] - items.first[item] == (int)strlen(references[item]));
        for (int32_t i = items.first[item]; i < items.first[item + 1]; i++) {
            char reference[2] = {references[item][i - items.first[item]], 0};
            cr_assert(is(syi_task_input(&task, items.examples[i]), inputs[item]));
            cr_assert(is(syi_task_target(&task, items.examples[i]), reference));
            cr_assert(items.item_of[items.examples[i]] == item);
        }
    }
    syi_items_free(&items);
    syi_task_free(&task);
}

Test(data_task, refuses_with_file_and_line)
{
    static const struct {
        const char *text;
        size_t bytes;
        const char *words[2];
    } cases[] = {
        {"", 0, {"task.tsv:1:", "empty"}},
        {"\xef\xbb\xbf", 3, {"task.tsv:1:", "empty"}},
        {"a\tb\rword\r", 9, {"task.tsv:2:", "no tab"}},
        {"a\tb\nword\n", 9, {"task.tsv:2:", "no tab"}},
        {"a\tb\n\nc\td\n", 9, {"task.tsv:2:", "no tab"}},
        {"a\tb\nc\td\0\n", 10, {"task.tsv:2:", "NUL"}},
        {"a\tb\nc\td\n\tx\n", 11, {"task.tsv:3:", "the input is empty"}},
        {"a\t\n", 3, {"task.tsv:1:", "the target is empty"}},
        {"a\t\r\n", 4, {"task.tsv:1:", "the target is empty"}},
        {"a\tb\t\n", 5, {"task.tsv:1:", "a further target is empty"}},
        {"a\tb\t", 4, {"task.tsv:1:", "a further target is empty"}},
        {"a\tb\nc\rd\te\n", 10, {"task.tsv:2:", "a carriage return within"}},
    };

    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct sy_error err = {0};
        struct syi_task task;
        cr_assert(load(&task, cases[i].text, cases[i].bytes, &err) == SY_EFORMAT, "case %zu", i);
        cr_assert(strstr(err.text, cases[i].words[0]) && strstr(err.text, cases[i].words[1]), "%s", err.text);
        cr_assert(!strchr(err.text, '\n'));
    }
}

/* Whatever is wrong with it, a bad record can be skipped; the warning has all of where and why. */
Test(data_task, skips_with_file_and_line)
{
    static const char text[] = "a\tb\nc\rd\te\n\tf\ng\th\n", *const name = "task.tsv";
    const char *path = write_fresh(name, text, sizeof text - 1);
    struct syi_config *config = tsv_config(path, 16, 16);
    struct syi_example_form form;
    struct caught_log log = {0};
    struct syi_task task;
    sy_log_set(catch_line, &log);
    cr_assert(syi_config_set(config, "task.t.on_bad_record=skip", NULL) == SY_OK);
    cr_assert(syi_example_form_make(&form, config, &config->task.part[0], NULL, NULL) == SY_OK);
    cr_assert(syi_task_load(&task, &form, path, NULL) == SY_OK);
    cr_assert(task.n_examples == 2 && is(syi_task_input(&task, 1), "g"));
    cr_assert(
        log.n == 1 && strstr(log.last, "bad records are skipped: 2, the first is ") &&
            strstr(log.last, "task.tsv:2: a carriage return within the line: end all lines with a line feed"),
        "%s", log.last);
    syi_task_free(&task);
    free(config);
    remove_path(path);
}

/* Short inputs of longer text: the index has 20 bits for the tokens of a piece. */
Test(data_task, pieces_are_no_longer_than_the_index_can_say)
{
    struct syi_config *config = tsv_config("task.tsv", 750000, SYI_MAX_LENGTH);
    struct syi_example_form form;
    cr_assert(syi_config_set(config, "task.t.objective=span_corruption", NULL) == SY_OK);
    cr_assert(syi_config_set(config, "task.t.noise_density=0.5", NULL) == SY_OK);
    cr_assert(syi_example_form_make(&form, config, &config->task.part[0], NULL, NULL) == SY_OK);
    cr_assert_eq(form.piece, SYI_MAX_LENGTH);
    free(config);
}

Test(data_task, nothing_but_bad_records)
{
    static const char text[] = "a\nb\n";
    const char *path = write_fresh("task.tsv", text, sizeof text - 1);
    struct syi_config *config = tsv_config(path, 16, 16);
    struct syi_example_form form;
    struct sy_error err = {0};
    struct syi_task task;
    cr_assert(syi_config_set(config, "task.t.on_bad_record=skip", NULL) == SY_OK);
    cr_assert(syi_example_form_make(&form, config, &config->task.part[0], NULL, NULL) == SY_OK);
    cr_assert(syi_task_load(&task, &form, path, &err) == SY_EFORMAT);
    cr_assert(strstr(err.text, "all records are skipped") && strstr(err.text, "task.tsv:1: no tab"), "%s",
              err.text);
    free(config);
    remove_path(path);
}

Test(data_task, missing_file)
{
    struct syi_example_form form = tsv_form();
    struct sy_error err = {0};
    struct syi_task task;

    cr_assert(syi_task_load(&task, &form, "/nonexistent/words.tsv", &err) == SY_ENOENT);
    cr_assert(strstr(err.text, "/nonexistent/words.tsv"));
}

Test(data_task, invalid_utf8_is_legal_and_said_once)
{
    static const char text[] = "a\tb\n\xff\tc\n\xc3\td\n";
    struct caught_log log = {0};
    struct syi_task task;

    sy_log_set(catch_line, &log);
    cr_assert(load(&task, text, sizeof(text) - 1, NULL) == SY_OK);
    cr_assert(task.n_examples == 3);
    cr_assert(log.n == 1 && strstr(log.last, "task.tsv:2:") && strstr(log.last, "2 of 3 records"), "%s",
              log.last);
    syi_task_free(&task);
}

/* Whatever bytes come, loading ends in a task or in an error. */
Test(data_task, any_bytes)
{
    static const char alphabet[] = {'a', '\t', '\n', '\r', '\0', '\xff', 'b', '\t'};
    uint32_t state = 1;
    char text[24];

    for (int round = 0; round < 300; round++) {
        struct sy_error err = {0};
        struct syi_task task;
        struct syi_items items;
        size_t bytes = (size_t)round % sizeof(text);
        for (size_t i = 0; i < bytes; i++) {
            state = state * 1664525u + 1013904223u;
            text[i] = alphabet[state >> 29];
        }
        if (load(&task, text, bytes, &err) != SY_OK) {
            cr_assert(err.code == SY_EFORMAT);
            continue;
        }
        cr_assert(syi_items_build(&items, &task, NULL) == SY_OK);
        cr_assert(items.first[items.n_items] == task.n_examples);
        syi_items_free(&items);
        syi_task_free(&task);
    }
}
