/* SPDX-License-Identifier: Apache-2.0 */
/* One frame of `switchyard top`: text of a given width and height from the numbers of a run. Knows no terminal
 * and no database. */
#include "config.h"

#include <math.h>
#include <string.h>
#include <wchar.h>

#include "cli/top/top.h"

enum { LEVELS = 8 };

static const char *const blocks[LEVELS] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                           "\u2585", "\u2586", "\u2587", "\u2588"};
static const char *const marks[LEVELS] = {"_", ".", ",", "-", "=", "+", "*", "#"};

#define BOLD  "1"
#define FAINT "2"
#define GREEN "32"
#define RED   "31"
#define BLUE  "34"

/* The frame as it grows. */
struct frame {
    const struct cli_top_size *size;
    struct syi_text *out;
    int lines, column; /* finished lines; columns of the one begun */
};

/* ---- characters ---- */

static int is_full(const struct frame *f)
{
    return f->lines >= f->size->height;
}

static void style(struct frame *f, const char *code)
{
    if (f->size->colour && !is_full(f)) syi_text_printf(f->out, "\033[%sm", code);
}

/* Of one character, which is well formed, by the locale: characters of East Asia take two. */
static int columns(const unsigned char *c, int bytes)
{
    wchar_t wide;
    mbstate_t state = {0};
    if (mbrtowc(&wide, (const char *)c, (size_t)bytes, &state) != (size_t)bytes) return 1;
    int n = wcwidth(wide);
    return n < 0 ? 1 : n;
}

/* The characters of text that the line has room for. What could steer a terminal, and what a terminal without
 * UTF-8 cannot show, is '?'. */
static void put(struct frame *f, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    for (size_t left = strlen(text); left && f->column < f->size->width && !is_full(f);) {
        int bytes, shown = syi_utf8_is_shown(c, left, &bytes) && (f->size->unicode || *c < 0x80);
        int taken = shown ? columns(c, bytes) : 1;
        if (f->column + taken > f->size->width) {
            f->column = f->size->width; /* half a character is none, and nothing follows it */
            return;
        }
        syi_text_append(f->out, shown ? (const char *)c : "?", shown ? (size_t)bytes : 1);
        c += bytes;
        left -= (size_t)bytes;
        f->column += taken;
    }
}

static void put_styled(struct frame *f, const char *code, const char *text)
{
    style(f, code);
    put(f, text);
    style(f, "0");
}

static void end_line(struct frame *f)
{
    if (is_full(f)) return;
    syi_text_puts(f->out, "\n");
    f->lines++;
    f->column = 0;
}

static void go_to(struct frame *f, int column)
{
    while (f->column < column && f->column < f->size->width && !is_full(f)) put(f, " ");
}

/* A value under its name, from a column on; on a narrow frame on a line of its own. */
static void put_pair(struct frame *f, int column, const char *name, const char *value)
{
    if (f->column && (f->column >= column || column + 16 > f->size->width)) end_line(f);
    if (f->column) go_to(f, column);
    put_styled(f, FAINT, name);
    put(f, " ");
    put(f, value);
}

/* ---- numbers ---- */

static const char *number(double value, const char *format, char text[32])
{
    if (!isfinite(value))
        strcpy(text, isnan(value) ? "-" : value > 0 ? "inf" : "-inf");
    else
        snprintf(text, 32, fabs(value) < 1e7 ? format : "%.3e", value);
    return text;
}

static void duration(double seconds, char text[32])
{
    if (!(seconds >= 0) || seconds > 3e9)
        strcpy(text, "-");
    else if (seconds >= 86400)
        snprintf(text, 32, "%.0f d %02.0f h", floor(seconds / 86400), floor(fmod(seconds, 86400) / 3600));
    else if (seconds >= 3600)
        snprintf(text, 32, "%.0f h %02.0f min", floor(seconds / 3600), floor(fmod(seconds, 3600) / 60));
    else if (seconds >= 60)
        snprintf(text, 32, "%.0f min %02.0f s", floor(seconds / 60), floor(fmod(seconds, 60)));
    else
        snprintf(text, 32, "%.0f s", seconds);
}

/* One character, of LEVELS heights; share 0..1. */
static void put_level(struct frame *f, double share)
{
    int level = !(share > 0) ? 0 : share >= 1 ? LEVELS - 1 : (int)(share * LEVELS);
    put(f, (f->size->unicode ? blocks : marks)[level]);
}

/* ---- parts ---- */

static void put_head(struct frame *f, const struct cli_top *top)
{
    int room = f->size->width - (int)strlen(top->state);
    put_styled(f, BOLD, top->run);
    put(f, "  ");
    put_styled(f, FAINT, top->path);
    if (f->column + 2 > room)
        end_line(f);
    else
        go_to(f, room);
    put_styled(f, top->live ? GREEN : BOLD, top->state);
    end_line(f);
}

static void put_bar(struct frame *f, double share, int width)
{
    int filled = (int)(share * width);
    style(f, GREEN);
    for (int i = 0; i < filled; i++) put(f, f->size->unicode ? "\u2588" : "#");
    style(f, FAINT);
    for (int i = filled; i < width; i++) put(f, f->size->unicode ? "\u2591" : ".");
    style(f, "0");
}

static void put_progress(struct frame *f, const struct cli_top *top)
{
    char text[96], left[32];
    double share = top->steps > 0 ? (double)top->step / (double)top->steps : 0;
    duration(top->seconds_left, left);
    if (top->steps > 0)
        snprintf(text, sizeof text, " %5.1f %%  step %lld/%lld", share * 100, (long long)top->step,
                 (long long)top->steps);
    else
        snprintf(text, sizeof text, "step %lld", (long long)top->step);
    if (top->live && top->seconds_left > 0)
        snprintf(text + strlen(text), sizeof text - strlen(text), "  %s left", left);
    int room = f->size->width - (int)strlen(text);
    if (top->steps > 0) {
        put_bar(f, share < 0 ? 0 : share > 1 ? 1 : share, room >= 10 ? room : f->size->width);
        if (room < 10) end_line(f);
    }
    put(f, text);
    end_line(f);
}

/* As many points as there is room for, each the mean of those it stands for; low is the least value. */
static void put_curve(struct frame *f, const struct cli_top *top)
{
    double low = INFINITY, high = -INFINITY;
    int room = f->size->width - f->column, n = top->n_points;
    for (int i = 0; i < n; i++) {
        low = fmin(low, top->loss_at[i]);
        high = fmax(high, top->loss_at[i]);
    }
    int shown = n < room ? n : room;
    style(f, BLUE);
    for (int i = 0; i < shown; i++) {
        double sum = 0;
        int from = (int)((long)i * n / shown), to = (int)((long)(i + 1) * n / shown);
        for (int j = from; j < to; j++) sum += top->loss_at[j];
        put_level(f, high > low ? (sum / (to - from) - low) / (high - low) : 0.5);
    }
    style(f, "0");
}

static void put_numbers(struct frame *f, const struct cli_top *top)
{
    char text[32];
    put_styled(f, FAINT, "loss          ");
    put_styled(f, BOLD, number(top->loss, fabs(top->loss) < 1e4 ? "%.4f" : "%.4g", text)); /* 9 columns */
    if (f->size->width >= 60 && top->n_points > 1) {
        go_to(f, 25);
        put_curve(f, top);
    } else if (top->n_points > 1) {
        end_line(f);
        put_curve(f, top);
    }
    end_line(f);
    put_pair(f, 0, "learning rate", number(top->learning_rate, "%.3e", text));
    put_pair(f, 25, "gradient norm", number(top->gradient_norm, "%.4f", text));
    put_pair(f, 47, "tokens/s", number(top->tokens_per_second, "%.0f", text));
    put_pair(f, 64, "ms/step", number(top->step_seconds * 1e3, "%.1f", text));
    end_line(f);
}

static void put_evaluations(struct frame *f, const struct cli_top *top)
{
    char text[128], value[32];
    if (!top->n_evals) return;
    end_line(f);
    put_styled(f, BOLD, "evaluations");
    for (int i = 0; i < top->n_evals; i++) {
        const struct cli_top_eval *e = &top->eval[i], *before = i ? e - 1 : NULL;
        if (!before || strcmp(before->task, e->task) || before->step != e->step) {
            end_line(f);
            snprintf(text, sizeof text, "  %s  step %lld", e->task, (long long)e->step);
            put(f, text);
        }
        snprintf(text, sizeof text, "  %s %s", e->name, number(e->value, "%.6g", value));
        if (f->column + (int)strlen(text) > f->size->width) {
            end_line(f);
            put(f, "  ");
        }
        put(f, text);
    }
    end_line(f);
    snprintf(text, sizeof text, "  and %d values more", top->evals_left_out);
    if (top->evals_left_out) put(f, text), end_line(f);
}

/* Experts share the room; where there are more than fit, those side by side are one mark, the fullest of them. */
static void put_load(struct frame *f, const struct cli_top_layer *layer, int room)
{
    int n = layer->n_experts, shown = n < room ? n : room, wide = n * 4 <= room ? 3 : 1;
    int all = n + layer->experts_left_out; /* which share the tokens */
    for (int i = 0; i < shown; i++) {
        double most = 0;
        for (int j = (int)((long)i * n / shown); j < (int)((long)(i + 1) * n / shown); j++)
            most = fmax(most, layer->share[j]);
        style(f, most * all > 2 || most * all < 0.5 ? RED : BLUE);
        for (int j = 0; j < wide; j++) put_level(f, most * all / 2);
        style(f, "0");
        if (wide > 1 && i + 1 < shown) put(f, " ");
    }
}

/* column: where the bars begin, after all names. */
static void put_layer(struct frame *f, const struct cli_top_layer *layer, int column)
{
    char text[80];
    double least = INFINITY, most = 0;
    for (int i = 0; i < layer->n_experts; i++) {
        least = fmin(least, layer->share[i]);
        most = fmax(most, layer->share[i]);
    }
    put(f, "  ");
    put(f, layer->name);
    put(f, "  ");
    go_to(f, column);
    snprintf(text, sizeof text, "  %4.1f to %4.1f %%%s  dropped %4.1f %%", least * 100, most * 100,
             layer->experts_left_out ? " (of the first experts)" : "", layer->dropped * 100);
    int room = f->size->width - f->column - (int)strlen(text);
    if (room < 8) {
        end_line(f);
        put(f, "    ");
        room = f->size->width - f->column - (int)strlen(text);
    }
    put_load(f, layer, room > 1 ? room : 1);
    put(f, text);
    end_line(f);
}

static void put_layers(struct frame *f, const struct cli_top *top)
{
    char text[64];
    int longest = 0;
    if (!top->n_layers) return;
    end_line(f);
    put_styled(f, BOLD, "expert load");
    put_styled(f, FAINT, ", half height is a fair share");
    end_line(f);
    for (int i = 0; i < top->n_layers; i++)
        if ((int)strlen(top->layer[i].name) > longest) longest = (int)strlen(top->layer[i].name);
    for (int i = 0; i < top->n_layers; i++) put_layer(f, &top->layer[i], longest + 4);
    snprintf(text, sizeof text, "  and %d layers more", top->layers_left_out);
    if (top->layers_left_out) put(f, text), end_line(f);
}

void cli_top_frame(const struct cli_top *top, const struct cli_top_size *size, struct syi_text *out)
{
    struct frame f = {.size = size, .out = out};
    put_head(&f, top);
    if (top->problem[0]) put_styled(&f, RED, top->problem), end_line(&f);
    put_progress(&f, top);
    end_line(&f);
    put_numbers(&f, top);
    put_evaluations(&f, top);
    put_layers(&f, top);
    if (!top->event[0]) return;
    end_line(&f);
    put_styled(&f, FAINT, top->event);
    end_line(&f);
}
