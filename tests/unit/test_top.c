/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of `switchyard top`: they keep to their size whatever the numbers and texts are. */
#include "config.h"

#include <locale.h>
#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "cli/top/top.h"

static struct cli_top usual;

static void make_usual(void)
{
    struct cli_top *t = &usual;
    *t = (struct cli_top){.run = "g2p",
                          .path = "runs/g2p",
                          .state = "running, process 12 on this host",
                          .live = 1,
                          .step = 300,
                          .steps = 1200,
                          .loss = 0.75,
                          .learning_rate = 1e-3,
                          .gradient_norm = 2.5,
                          .tokens_per_second = 12345,
                          .step_seconds = 0.1,
                          .seconds_left = 90,
                          .n_points = 100,
                          .n_evals = 2,
                          .n_layers = 2,
                          .event = "last event: start at step 0: starting fresh"};
    for (int i = 0; i < t->n_points; i++) t->loss_at[i] = 6.0 - i * 0.05;
    t->eval[0] = (struct cli_top_eval){"g2p/valid", "loss", 200, 0.5};
    t->eval[1] = (struct cli_top_eval){"g2p/valid", "wer", 200, 0.25};
    for (int l = 0; l < 2; l++) {
        struct cli_top_layer *layer = &t->layer[l];
        snprintf(layer->name, sizeof layer->name, "encoder/layers_%d/mlp", l);
        layer->n_experts = l ? 128 : 4;
        for (int i = 0; i < layer->n_experts; i++) layer->share[i] = 1.0 / layer->n_experts;
    }
}

TestSuite(top, .init = make_usual);

static int columns(const char *line, size_t bytes)
{
    int n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)line[i] & 0xc0) != 0x80;
    return n;
}

/* No line is wider and there are not more lines than size says, and all is text. */
static void check_frame(const struct cli_top *top, struct cli_top_size size, struct syi_text *text)
{
    int lines = 0;
    cli_top_frame(top, &size, text);
    cr_assert(text->data);
    for (const char *line = text->data; *line; lines++) {
        size_t length = strcspn(line, "\n");
        cr_expect_eq(line[length], '\n', "a line without its end");
        cr_expect(columns(line, length) <= size.width, "%d columns, not %d: %s", columns(line, length),
                  size.width, line);
        for (size_t i = 0; i < length; i++) {
            unsigned char c = (unsigned char)line[i];
            cr_expect(c >= 0x20 && c != 0x7f && (size.unicode || c < 0x80), "byte %d in line %d", c, lines);
        }
        line += length + 1;
    }
    cr_expect(lines <= size.height, "%d lines, not %d", lines, size.height);
}

static void check_all_sizes(const struct cli_top *top)
{
    static const int widths[] = {1, 20, 40, 80, 200}, heights[] = {1, 5, 24, 1000};
    for (size_t w = 0; w < SYI_COUNT(widths); w++)
        for (size_t h = 0; h < SYI_COUNT(heights); h++)
            for (int unicode = 0; unicode < 2; unicode++) {
                struct syi_text text = {0};
                check_frame(top, (struct cli_top_size){widths[w], heights[h], unicode, 0}, &text);
                syi_text_free(&text);
            }
}

Test(top, keeps_to_its_size)
{
    check_all_sizes(&usual);
}

Test(top, says_what_there_is)
{
    static const char *const words[] = {"g2p",
                                        "runs/g2p",
                                        "running, process 12",
                                        "25.0 %",
                                        "step 300/1200",
                                        "1 min 30 s left",
                                        "0.7500",
                                        "1.000e-03",
                                        "2.5000",
                                        "12345",
                                        "100.0",
                                        "step 200",
                                        "loss 0.5",
                                        "wer 0.25",
                                        "encoder/layers_1/mlp",
                                        "25.0 to 25.0 %",
                                        "last event: start"};
    static const int widths[] = {40, 80, 200};
    for (size_t w = 0; w < SYI_COUNT(widths); w++) {
        struct syi_text text = {0};
        check_frame(&usual, (struct cli_top_size){widths[w], 100, 1, 0}, &text);
        for (size_t i = 0; i < SYI_COUNT(words); i++)
            cr_expect(strstr(text.data, words[i]) || (widths[w] == 40 && i == SYI_COUNT(words) - 1),
                      "%s is not in the frame of width %d:\n%s", words[i], widths[w], text.data);
        syi_text_free(&text);
    }
}

/* A loss that falls is a curve that falls: each mark is as high as the one before it or lower, the first highest. */
Test(top, the_curve_falls_with_the_loss)
{
    static const char marks[] = "_.,-=+*#";
    struct syi_text text = {0};
    usual.n_layers = 0;
    check_frame(&usual, (struct cli_top_size){80, 24, 0, 0}, &text);
    const char *curve = strstr(text.data, "0.7500") + 6;
    curve += strspn(curve, " ");
    size_t n = strcspn(curve, "\n");
    cr_assert(n > 30);
    cr_expect_eq(curve[0], '#');
    cr_expect_eq(curve[n - 1], '_');
    for (size_t i = 1; i < n; i++) cr_expect(strchr(marks, curve[i]) <= strchr(marks, curve[i - 1]));
    syi_text_free(&text);
}

/* What a database holds is anybody's: no text of it steers the terminal. */
Test(top, texts_do_not_reach_the_terminal_as_orders)
{
    strcpy(usual.event, "\033[2J\a\xc2\x9b"
                        "31m \xff\xfe \xe2\x82");
    strcpy(usual.run, "\033]0;title\a");
    strcpy(usual.layer[0].name, "\r\n\t");
    strcpy(usual.eval[0].task, "\xc3\xa9\033c");
    strcpy(usual.problem, "line\nline");
    check_all_sizes(&usual);
}

/* Characters of East Asia take two columns: where one is left, none of them stands there. */
Test(top, wide_characters)
{
    if (!setlocale(LC_CTYPE, "C.UTF-8")) cr_skip_test("there is no locale C.UTF-8");
    strcpy(usual.event, "ab\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57");
    for (int width = 20; width < 22; width++) {
        struct syi_text text = {0};
        check_frame(&usual, (struct cli_top_size){width, 1000, 1, 0}, &text);
        cr_expect(strstr(text.data, "\nab\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22\n"), "%s",
                  text.data);
        syi_text_free(&text);
    }
}

Test(top, numbers_that_are_none)
{
    usual.loss = usual.learning_rate = usual.gradient_norm = usual.seconds_left = NAN;
    usual.tokens_per_second = INFINITY;
    usual.step_seconds = -1e308;
    usual.eval[0].value = 1e308;
    usual.step = INT64_MAX;
    for (int i = 0; i < usual.n_points; i++) usual.loss_at[i] = i % 2 ? 1e308 : -1e308;
    memset(usual.layer[0].share, 0, sizeof usual.layer[0].share);
    usual.layer[1].n_experts = CLI_TOP_EXPERTS;
    check_all_sizes(&usual);
    usual = (struct cli_top){.loss = NAN};
    check_all_sizes(&usual);
}

/* Half height is a fair share of all experts, also of those that a frame has no room to keep. */
Test(top, experts_left_out_have_their_share)
{
    struct syi_text text = {0};
    struct cli_top_layer *layer = &usual.layer[0];
    layer->n_experts = layer->experts_left_out = CLI_TOP_EXPERTS;
    for (int i = 0; i < layer->n_experts; i++) layer->share[i] = 0.5 / CLI_TOP_EXPERTS;
    usual.n_layers = 1;
    usual.n_points = 0;
    check_frame(&usual, (struct cli_top_size){80, 24, 0, 0}, &text);
    cr_expect(strstr(text.data, "====="), "%s", text.data);
    syi_text_free(&text);
}

Test(top, colours_take_no_room)
{
    struct syi_text plain = {0}, coloured = {0}, without = {0};
    cli_top_frame(&usual, &(struct cli_top_size){80, 24, 1, 0}, &plain);
    cli_top_frame(&usual, &(struct cli_top_size){80, 24, 1, 1}, &coloured);
    for (const char *c = coloured.data; *c; c++) {
        if (*c == '\033')
            c = strchr(c, 'm');
        else
            syi_text_append(&without, c, 1);
    }
    cr_expect_str_eq(plain.data, without.data);
    cr_expect(coloured.length > plain.length);
    syi_text_free(&plain);
    syi_text_free(&coloured);
    syi_text_free(&without);
}
