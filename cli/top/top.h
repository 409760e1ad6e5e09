/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard top in parts: numbers of a run (gather.c), a frame of text from them (frame.c), the terminal
 * (terminal.c). */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include "base/text.h"

enum { CLI_TOP_POINTS = 240, CLI_TOP_EVALS = 24, CLI_TOP_LAYERS = 64, CLI_TOP_EXPERTS = 512 };

struct cli_top_eval {
    char task[64], name[64];
    int64_t step;
    double value;
};

struct cli_top_layer {
    char name[64];
    int n_experts, experts_left_out;
    double share[CLI_TOP_EXPERTS]; /* of the layer's tokens, of the newest steps */
    double dropped;                /* share of choices for which there was no place */
};

/* Numbers are NaN where the run has none. */
struct cli_top {
    char run[64], path[256], state[256]; /* name, directory, what it is doing */
    int live;
    int64_t step, steps; /* done, wanted (0: not known) */
    double loss, learning_rate, gradient_norm, tokens_per_second, step_seconds, seconds_left;
    int n_points;
    double loss_at[CLI_TOP_POINTS]; /* (n_points) means over equal stretches of the run, oldest first */
    int n_evals, evals_left_out;
    struct cli_top_eval eval[CLI_TOP_EVALS]; /* newest of each, in the order of tasks */
    int n_layers, layers_left_out;
    struct cli_top_layer layer[CLI_TOP_LAYERS];
    char event[256];   /* newest */
    char problem[256]; /* why the numbers are not of now; "" when they are */
};

struct cli_top_size {
    int width, height; /* columns and lines of the terminal: no line is wider, no more lines than height */
    int unicode;       /* block characters; else ASCII */
    int colour;        /* escape sequences for colours, which take no width */
};

/* Appends the frame, a line feed after every line. Control characters of the run's texts become '?'. */
void cli_top_frame(const struct cli_top *top, const struct cli_top_size *size, struct syi_text *out);

/* Reads the run in the directory path. The database is open for moments only. */
int cli_top_gather(const char *path, struct cli_top *top, struct sy_error *err) SYI_MUST_CHECK;

/* ---- terminal.c ---- */

enum cli_top_wake { CLI_TOP_TIME, CLI_TOP_RESIZED, CLI_TOP_QUIT };

/* Takes over the terminal on standard output: alternate screen, keys without return, signals. */
int cli_top_terminal_open(struct sy_error *err) SYI_MUST_CHECK;
void cli_top_terminal_close(void); /* as it was before; may be called when it is not open */
void cli_top_terminal_size(struct cli_top_size *size);
int cli_top_terminal_show(const char *frame, struct sy_error *err) SYI_MUST_CHECK;
/* Waits for so many seconds, for q, or for a signal that ends the program. */
enum cli_top_wake cli_top_terminal_wait(double seconds);

#endif
