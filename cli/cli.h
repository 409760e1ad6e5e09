/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of the program share: a row and an entry a command, one table of options, and how
 * messages are printed and exit statuses chosen. */
#ifndef CLI_H
#define CLI_H

#include <stdio.h>

#include "base/run_config.h"
#include "base/safetensors.h"
#include "train/launch/launch.h"

enum cli_exit { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_RESUMABLE = 3 };

enum { CLI_MAX_SETS = 64, CLI_MAX_OPERANDS = 4096 };

/* Values of an option that may be repeated, in the order given. */
struct cli_list {
    const char *item[CLI_MAX_SETS];
    int n;
};

/* Options as given; what is absent keeps its start value. */
struct cli_options {
    const char *backend, *comm; /* "cpu", "auto" */
    int ranks, threads;         /* 0: not given */
    struct cli_list set;        /* KEY=VALUE */
    struct cli_list a, b;       /* of diff: the same for one side */
    int devices, partitions;    /* of plan: ranks to plan for, T5X's num_partitions; 0: not given */
    int schedule, tensors;      /* likewise */
    int quiet, resume, takeover, tsv;
    const char *run_dir; /* NULL */
    int64_t checkpoint;  /* a step, or as in core/train/checkpoint/checkpoint.h */
    const char *after;   /* stage of explain */
    const char *program; /* of explain */
    int64_t step;        /* of replay, 0: not given */
    struct cli_list dump;
    const char *write;
    const char *file;                /* of eval and score */
    const char *task;                /* of eval */
    int per_token;                   /* of score */
    const char *beams, *temperature; /* of eval and predict: as typed, NULL */
    const char *decodes;             /* of predict: as typed, NULL */
    int scores;                      /* of predict: 0, not given */
    const char *backends;            /* of diff, NULL */
    double tolerance; /* of verify: factor of its bounds; of diff: distance that passes; 0: not given */
    int compat_diff, factors, optimizers, transforms; /* of config */
    int decode, targets;                              /* of tokenize */
    int json;
    int verbose;
    int profile, data;                   /* of bench */
    int steps, warmup, pairs, places;    /* of diff and bench: 0, not given */
    const char *compare, *shape, *dtype; /* likewise NULL */
    double seconds;                      /* likewise 0 */
    const char *format, *export, *name;  /* of metrics, NULL */
    int list;                            /* likewise */
    int64_t from, to;                    /* steps, -1: not given */
    const char *to_backend;              /* of move, NULL */
    int once;                            /* of top */
    double every;                        /* seconds; 0: not given */
    const char *output;                  /* of report, convert-gin and pack, NULL */
    int int8;                            /* of pack */
    const char *folder;                  /* of import, export and ckpt: where to, NULL */
    const char *which;                   /* of ckpt: "20,40", NULL */
    int keep;                            /* of ckpt: 0, not given */
    const char *operand[CLI_MAX_OPERANDS];
    int n_operands;
};

struct cli_cmd {
    const char *name;
    const char *operands; /* "RUNFILE", "RUN_DIR [SQL]": those in brackets may be left out; "PATH...": many */
    const char *options;  /* names the command takes, separated by spaces, from the table in options.c */
    const char *help;     /* one line */
    const char *details;  /* more for --help, or NULL */
    int (*run)(const struct cli_options *options); /* returns enum cli_exit */
};

/* commands.c: the list, ends with one without name. */
extern const struct cli_cmd cli_commands[];
/* Names of those that a build without training does not have, ends with NULL. */
extern const char *const cli_left_out[];
#define CLI_COMMAND(name, ...) int cli_##name(const struct cli_options *options);
#define CLI_TRAINING_COMMAND   CLI_COMMAND
#include "cli/commands.def"
enum {
#define CLI_COMMAND(name, ...) CLI_NUMBER_##name,
#define CLI_TRAINING_COMMAND   CLI_COMMAND
#include "cli/commands.def"
    CLI_MOST_COMMANDS
};

/* options.c: reads the arguments after the command's name. Returns CLI_DONE, or the exit status after having
 * said why (*finished = 1 after --help). */
int cli_parse(const struct cli_cmd *cmd, int argc, char **argv, struct cli_options *options, int *finished);
void cli_print_help(const struct cli_cmd *cmd);
/* What all ranks need alike: the command and its options that are set, but for those that each rank may have of its own and
 * those that are keys, whose values are compared. */
enum { CLI_COMMAND_BYTES = 4 * SYI_CONFIG_STRING }; /* what is longer is cut */
void cli_print_command(const struct cli_cmd *cmd, const struct cli_options *options,
                       char command[CLI_COMMAND_BYTES]);
const char *cli_nearest(const char *word, const char *const *words, size_t n);

/* job_path.c: %A, %a, %j, %x in the name of a run directory become what Slurm says, in place; `what` names it in messages.
 * CLI_DONE, or the exit status after having said why not. The names stay until they are all freed. */
int cli_job_path(const char *what, const char **path);
void cli_job_paths_free(void);

/* wrap.c: lines of 79 columns at most unless a word is longer. */
/* Words of `length` bytes of text from this column on, further lines from `indent` on; ends the line. */
void cli_wrap(FILE *out, const char *text, size_t length, size_t column, size_t indent);
/* A line of output: one line in a file, in a terminal as many as its width asks for, the further ones from `indent` on. */
void cli_print_line(const char *text, size_t indent);
/* A row of a table whose columns are two blanks apart: in a terminal what its last column has too much goes on below. */
void cli_print_row(const char *row);
/* What `config` prints of keys and of what they can name, for a terminal: on stdout. */
void cli_print_help_lines(const char *text);
/* Lines of text that follow each other are one paragraph, those that begin with a blank are rows of a table. */
void cli_print_paragraphs(const char *text); /* on stdout */

/* message.c */
void cli_error(const char *format, ...) SYI_PRINTF(1, 2); /* "switchyard: ..." on stderr, one line */
int cli_fail(const struct sy_error *err);                 /* prints it; CLI_FAILED */
int cli_usage(const struct sy_error *err);                /* prints it; CLI_USAGE */

void cli_error_hold(int on);      /* 1: from now on the last message is kept, not printed: of ranks above 0 */
const char *cli_error_last(void); /* without the program's name; "" when there was none */

/* stop.c: signals that ask for an end. */
/* From now on SIGINT, SIGTERM, SIGHUP and n further signals call ask, in a signal handler, and do nothing else; a second SIGINT
 * or SIGTERM ends the process. */
void cli_catch_stop(void (*ask)(void), const int *further, size_t n);
/* For commands that make something whole or not at all: the signals are noted by syi_interrupt. */
void cli_catch_interrupts(void);
/* cli_fail, after which the process ends by the signal if that was why it failed, as its caller may want to know. */
int cli_fail_or_stop(const struct sy_error *err);

/* environment.c */
/* Warns of variables SWITCHYARD_* that nothing reads. */
void cli_check_environment(void);
/* Calls fn for every SWITCHYARD_* that is set. nearest: NULL, or, of a name that means nothing, the one most
 * like it, "" where none is. */
typedef void (*cli_variable_fn)(void *arg, const char *name, const char *value, const char *nearest);
void cli_each_variable(cli_variable_fn fn, void *arg);
/* A variable that holds whole seconds, `least` to 1000000000; *seconds stays where it is not set, or empty. */
int cli_read_seconds(const char *variable, long least, double *seconds, struct sy_error *err) SYI_MUST_CHECK;

/* world.c: the processes that a launcher started as one run. For a process alone all of this does nothing. */
/* Before arguments are read: ranks above 0, as the launcher counts them, fall silent. */
void cli_world_begin(const struct cli_cmd *cmd);
/* The exit status of a process that fails before it can meet the others: a rank above 0 says why when rank 0
 * has had time to say the same, and the launcher is asked to end the others. */
int cli_world_give_up(const struct cli_cmd *cmd, int status);
/* Before the command runs. CLI_DONE, or the exit status after having said why. */
int cli_world_open(const struct cli_cmd *cmd, const struct cli_options *options);
/* After the command: the exit status of all ranks. */
int cli_world_close(int status);
/* Every rank comes here with its exit status; a failure of one is the failure of all, reported once. */
int cli_world_agree(int status);
/* Run file and program are the same on all ranks, and the vocabularies' files are held from here on; CLI_FAILED after having
 * said which are not. */
int cli_world_same(const struct syi_config *config);
/* The command and its options are, as cli_print_command has them; CLI_USAGE after having said which are not. */
int cli_world_same_command(const char command[CLI_COMMAND_BYTES]);
int cli_world_first(void); /* 1: this is rank 0, which owns the run directory and prints */
/* Rank 0's bytes on all ranks. */
int cli_world_share(void *data, size_t bytes);
/* Returns what fn does, which rank 0 calls, however long it takes, while the others wait in cli_world_share or for the end of
 * the command. */
int cli_world_work(syi_work_fn fn, void *arg, struct sy_error *err);
struct syi_world *cli_world(void);
/* The stream if it is a terminal in which a line may be rewritten, else NULL: under mpirun, which gives ranks terminals of
 * their own, none is, whatever --comm says. */
FILE *cli_terminal(FILE *stream);

/* setup.c: defaults, then the run file if given, or the values of a run directory or a packed model as cli_load_run reads
 * them (rank 0 alone reads), then --set; validated. */
int cli_load_config(const char *run_file, const struct cli_options *options, struct syi_config *config,
                    struct sy_error *err);
/* The same over the values of a run directory or a packed model, without sizes of a mesh that do not make these ranks. */
int cli_load_run(const char *run_dir, const struct cli_options *options, struct syi_config *config,
                 struct sy_error *err);
/* The same of a run directory whose settings `change` replaces by others, before --set; where ranks meet, on rank 0. */
typedef int (*cli_settings_fn)(void *arg, struct syi_config *config, struct sy_error *err);
int cli_load_run_as(const char *run_dir, const struct cli_options *options, cli_settings_fn change, void *arg,
                    struct syi_config *config, struct sy_error *err);
/* The same for the run itself, which keeps the names of its vocabularies. */
int cli_load_to_resume(const char *run_dir, const struct cli_options *options, struct syi_config *config,
                       struct sy_error *err);
/* The exit status when one of these has failed, after having said why: a usage error, unless a packed model is damaged. */
int cli_load_failed(const struct sy_error *err);
int cli_is_folder(const char *path);
/* The dtype of weights that --dtype names (float32 where it is NULL). */
int cli_weights_dtype(const char *name, enum syi_safetensors_dtype *dtype, struct sy_error *err);
/* Whether "KEY=VALUE" sets cpu.threads, which counts only where --threads is not given. */
int cli_sets_threads(const char *assignment);
struct syi_launch cli_launch(const struct cli_options *options, const struct syi_config *config);
/* Whether the launch that was asked for is possible: CLI_DONE, or the exit status after having said why not.
 * numbers: the command needs a backend that computes. */
int cli_check_launch(const char *command, const struct cli_options *options, const struct syi_config *config,
                     int numbers);
/* Log lines of the library go to stderr from now on (warnings only when quiet). */
void cli_log_to_stderr(int quiet);

#define CLI_MODEL_OPTIONS "backend comm ranks threads set quiet"

#endif
