/* SPDX-License-Identifier: Apache-2.0 */
/* The options of all commands in one table; which a command takes stands in its entry. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "train/checkpoint/checkpoint.h"

enum kind { FLAG, TEXT, NUMBER, COUNT, FACTOR, STEP, LIST };

/* Two options of different commands may have one name: then a colon and a word after it tell them apart, here and in the
 * commands' lists. */
static const struct option {
    const char *name, *argument, *help;
    enum kind kind;
    size_t offset; /* in struct cli_options */
} table[] = {
#define AT(field) offsetof(struct cli_options, field)
    {"backend", "NAME",
     "compute backend: cpu (default), cuda (an NVIDIA GPU) or null (counts calls, computes nothing)", TEXT,
     AT(backend)},
    {"comm", "auto|self|thread|mpi", "communication; auto (default): mpi under mpirun or srun", TEXT,
     AT(comm)},
    {"ranks", "N", "ranks as threads of this process (comm thread)", NUMBER, AT(ranks)},
    {"threads", "N", "threads of each rank; default: the CPUs this process may use, shared by its ranks",
     NUMBER, AT(threads)},
    {"devices", "N", "plan for N devices, one rank each, wherever they are", NUMBER, AT(devices)},
    {"partitions", "M", "the mesh T5X makes of --devices with num_partitions = M", NUMBER, AT(partitions)},
    {"schedule", NULL, "print the learning rate over the run's steps instead", FLAG, AT(schedule)},
    {"tensors", NULL, "print the split of every tensor, too", FLAG, AT(tensors)},
    {"set", "KEY=VALUE", "overrides a key of the run file; may be repeated; other options hold over it", LIST,
     AT(set)},
    {"a", "KEY=VALUE", "the same for A alone; more in the text above", LIST, AT(a)},
    {"b", "KEY=VALUE", "the same for B alone", LIST, AT(b)},
    {"backends", "A,B", "the backend of each side", TEXT, AT(backends)},
    {"quiet", NULL, "no progress, only results, warnings and errors", FLAG, AT(quiet)},
    {"run-dir", "DIR",
     "where the run lives, with %A, %a, %j, %x of a job of Slurm; default runs/NAME-YYYYMMDD-HHMMSS", TEXT,
     AT(run_dir)},
    {"run-dir:doctor", "DIR", "look at this folder too, in which a run will live; it need not be there yet",
     TEXT, AT(run_dir)},
    {"resume", NULL, "continue the run in --run-dir, or start it if it has no checkpoint", FLAG, AT(resume)},
    {"takeover", NULL, "take the lock of --run-dir from a process of another host that runs no more", FLAG,
     AT(takeover)},
    {"checkpoint", "latest|best|STEP", "which checkpoint; best: of the best evaluation; default latest", STEP,
     AT(checkpoint)},
    {"after", "STAGE",
     "show the program after record, partition, fuse, fold, hoist, recompute, join, lower or plan (default plan)",
     TEXT, AT(after)},
    {"program", "NAME",
     "which program: grad_first (default), grad_next, update, update_metrics, eval, score, encode, decode_step, exchange, weights",
     TEXT, AT(program)},
    {"file", "FILE", "read this file, of the task's format, instead of task.NAME.test", TEXT, AT(file)},
    {"file:score", "FILE", "read the lines of this file instead of the standard input", TEXT, AT(file)},
    {"task", "NAME", "this task alone; with --file whose metrics are taken", TEXT, AT(task)},
    {"per-token", NULL, "divide each score by the number of tokens of the target", FLAG, AT(per_token)},
    {"step", "N", "the step to do again, 1 is the first", STEP, AT(step)},
    {"dump", "PATTERN", "show the tensors of this name, * any text, ? one byte; may be repeated", LIST,
     AT(dump)},
    {"write", "FILE", "also write them to this file, as safetensors", TEXT, AT(write)},
    {"beams", "N", "beam search with N beams; short for --set decode.beams=N", TEXT, AT(beams)},
    {"temperature", "X", "draw tokens; short for --set decode.temperature=X", TEXT, AT(temperature)},
    {"decodes", "N",
     "write the N best outputs of an input, of N beams or more; short for --set decode.num_decodes=N", TEXT,
     AT(decodes)},
    {"scores", NULL, "write each output's score after a TAB; short for --set decode.scores=true", FLAG,
     AT(scores)},
    {"decode", NULL, "read ids, write their text", FLAG, AT(decode)},
    {"targets", NULL, "the vocabulary of targets, not of inputs", FLAG, AT(targets)},
    {"tsv", NULL, "tab separated output, for programs", FLAG, AT(tsv)},
    {"format", "aligned|tsv|csv|json",
     "default aligned; csv: RFC 4180; json: an array of objects, NaN and infinity are null", TEXT,
     AT(format)},
    {"list", NULL, "names of what is there: metrics, evaluations, parameters, with rows and steps", FLAG,
     AT(list)},
    {"name", "PATTERN", "step, name and value of what has such a name, as in 'experts/*'", TEXT, AT(name)},
    {"from", "STEP", "only from this step on", COUNT, AT(from)},
    {"to", "STEP", "only up to this step", COUNT, AT(to)},
    {"export", "csv|tensorboard", "write all of the run into files in the folder DIR, which is new or empty",
     TEXT, AT(export)},
    {"backend:move", "NAME", "where to: cpu, cuda or another that computes; default: the backend stays", TEXT,
     AT(to_backend)},
    {"set:move", "KEY=VALUE",
     "a key of cpu (but cpu.threads), cuda, device or memory; may be repeated; others keep their values",
     LIST, AT(set)},
    {"timeout", "SECONDS", "how long to wait for the run's answer; default 600", FACTOR, AT(seconds)},
    {"once", NULL, "one frame of plain text, then end", FLAG, AT(once)},
    {"every", "SECONDS", "time between two frames; default 2", FACTOR, AT(every)},
    {"to:folder", "DIR", "where to write; a folder that is new or empty", TEXT, AT(folder)},
    {"format:checkpoint", "hf|t5x", "default: the one that the folder looks like", TEXT, AT(format)},
    {"step:ckpt", "latest|best|STEP", "which checkpoint of a run; default latest", STEP, AT(checkpoint)},
    {"steps:ckpt", "STEP,STEP,...", "which checkpoints of a run", TEXT, AT(which)},
    {"keep", "N", "prune: how many of the newest stay", NUMBER, AT(keep)},
    {"dtype:ckpt", "float32|bfloat16", "cast: of the parameters", TEXT, AT(dtype)},
    {"format:export", "hf|safetensors|t5x", "for transformers, one file, or for T5X", TEXT, AT(format)},
    {"dtype:export", "float32|bfloat16", "of the weights; default float32", TEXT, AT(dtype)},
    {"output", "FILE", "the page to write; -o FILE is short for it", TEXT, AT(output)},
    {"output:gin", "FILE",
     "the run file to write, which must not be there; default: standard output. -o FILE is short for it",
     TEXT, AT(output)},
    {"output:pack", "FILE", "the file to write, which must be new; -o FILE is short for it", TEXT,
     AT(output)},
    {"int8", NULL, "weights of matrix products as int8", FLAG, AT(int8)},
    {"dtype:pack", "float32|bfloat16", "of the same weights; default float32", TEXT, AT(dtype)},
    {"tolerance", "X",
     "verify: multiply all bounds by X, default 1; diff: distance that passes, without it bits are compared",
     FACTOR, AT(tolerance)},
    {"verbose", NULL, "print every tensor", FLAG, AT(verbose)},
    {"verbose:backends", NULL, "measure the CPU's variants; -v is short for it", FLAG, AT(verbose)},
    {"json", NULL, "one JSON document instead of text", FLAG, AT(json)},
    {"steps", "N", "steps to compare or to time; default 1 in diff, 10 in bench", NUMBER, AT(steps)},
    {"warmup", "N", "steps before them; default 2", NUMBER, AT(warmup)},
    {"profile", NULL, "then time every op: tables by kind of op, of products by shape, and by layer", FLAG,
     AT(profile)},
    {"data", NULL, "the run's data instead of random words", FLAG, AT(data)},
    {"compare", "KEY=VALUE,...",
     "a second configuration: keys of the run file, backend, comm, ranks, threads", TEXT, AT(compare)},
    {"pairs", "N", "measurements of both configurations, 64 at most; default 5", NUMBER, AT(pairs)},
    {"shape", "AxBx...", "extents to measure at, instead of those of T5 models", TEXT, AT(shape)},
    {"dtype", "float32|bfloat16", "of the operands; default float32", TEXT, AT(dtype)},
    {"places", "N",
     "operands and results of gemm lie in so many places, taken in turn, as those of a step do; default 1",
     NUMBER, AT(places)},
    {"seconds", "X",
     "time for each measurement; default 0.2; below 0.01 the machine itself is measured in a moment too",
     FACTOR, AT(seconds)},
    {"factors", NULL, "print the factors of train.lr_factors and their arguments", FLAG, AT(factors)},
    {"optimizers", NULL, "print the optimizers of optimizer.name, their keys and chains", FLAG,
     AT(optimizers)},
    {"transforms", NULL, "print the transforms of optimizer.chain and their arguments", FLAG, AT(transforms)},
    {"compat-diff", NULL, "print what run.compat = t5x changes", FLAG, AT(compat_diff)},
#undef AT
};

/* Short forms, of which there are few: a letter is said for what every program says it for. */
static const struct letter {
    const char *letter, *name;
} letters[] = {{"-o", "--output"}, {"-v", "--verbose"}};

/* Whether `name` is one of the words of `list`. */
static int has_word(const char *list, const char *name, size_t length)
{
    for (const char *at = list; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ' ' || !at[length])) return 1;
    return 0;
}

const char *cli_nearest(const char *word, const char *const *words, size_t n)
{
    const char *best = words[0];
    for (size_t i = 1; i < n; i++)
        if (syi_edit_distance(word, words[i]) < syi_edit_distance(word, best)) best = words[i];
    return best;
}

/* Of the name as it is typed. */
static int name_length(const struct option *option)
{
    return (int)strcspn(option->name, ":");
}

static const struct option *find_option(const struct cli_cmd *cmd, const char *name, size_t length)
{
    for (size_t i = 0; i < SYI_COUNT(table); i++)
        if ((size_t)name_length(&table[i]) == length && !strncmp(table[i].name, name, length) &&
            has_word(cmd->options, table[i].name, strlen(table[i].name)))
            return &table[i];
    return NULL;
}

/* Whether the option of one command is what another calls so: where the result goes. */
static int is_called_so(const char *name, const struct option *option)
{
    static const char *const same[] = {"to", "output", "write"};
    int of_name = 0, of_option = 0;
    for (size_t i = 0; i < SYI_COUNT(same); i++) {
        of_name |= !strcmp(name, same[i]);
        of_option |= strlen(same[i]) == (size_t)name_length(option) &&
                     !strncmp(option->name, same[i], strlen(same[i]));
    }
    return of_name && of_option;
}

/* given: as typed, dashes and value included. */
static void unknown_option(const struct cli_cmd *cmd, const char *given)
{
    char name[32]; /* cut off where it is like no option anyway */
    size_t dashes = strspn(given, "-"), length = strcspn(given, "=");
    snprintf(name, sizeof name, "%.*s", (int)(length - dashes), given + dashes);
    struct syi_nearest nearest = {.name = name};
    syi_nearest_offer(&nearest, "help", 4);
    for (size_t i = 0; i < SYI_COUNT(table); i++) {
        if (!has_word(cmd->options, table[i].name, strlen(table[i].name))) continue;
        syi_nearest_offer(&nearest, table[i].name, (size_t)name_length(&table[i]));
        if (is_called_so(name, &table[i]))
            snprintf(nearest.known, sizeof nearest.known, "%.*s", name_length(&table[i]), table[i].name);
    }
    cli_error("%s: unknown option %.*s%s%s%s (switchyard %s --help lists all)", cmd->name, (int)length, given,
              *nearest.known ? ", did you mean --" : "", nearest.known, *nearest.known ? "?" : "", cmd->name);
}

static int parse_number(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < least || n > most) return 0;
    *value = n;
    return 1;
}

/* A number over 0 and up to 1e30, as the message below says. */
static int parse_factor(const char *text, double *value)
{
    const char *end;
    double number = syi_parse_double(text, &end);
    if (end == text || *end || !(number > 0) || number > 1e30) return 0;
    *value = number;
    return 1;
}

static const char *expected(const struct option *option)
{
    if (option->kind == NUMBER) return "a whole number in 1..65536";
    if (option->kind == COUNT) return "a whole number from 0 on";
    return option->kind == FACTOR ? "a number over 0, at most 1e30" : option->argument;
}

static int store(const struct option *option, const char *value, struct cli_options *o)
{
    void *field = (char *)o + option->offset;
    int64_t number;
    switch (option->kind) {
    case FLAG: *(int *)field = 1; return CLI_DONE;
    case TEXT:
        if (!*value) break; /* as of a variable of a script that is not set: --run-dir "$RUN" */
        *(const char **)field = value;
        return CLI_DONE;
    case NUMBER:
        if (!parse_number(value, 1, 65536, &number)) break; /* the range stands in the message below, too */
        *(int *)field = (int)number;
        return CLI_DONE;
    case COUNT:
        if (!parse_number(value, 0, INT64_MAX, &number)) break;
        *(int64_t *)field = number;
        return CLI_DONE;
    case FACTOR:
        if (!parse_factor(value, field)) break;
        return CLI_DONE;
    case STEP:
        if (!strcmp(value, "latest"))
            number = SYI_CHECKPOINT_LATEST;
        else if (!strcmp(value, "best"))
            number = SYI_CHECKPOINT_BEST;
        else if (!parse_number(value, 0, INT64_MAX, &number))
            break;
        *(int64_t *)field = number;
        return CLI_DONE;
    case LIST:
        if (((struct cli_list *)field)->n == CLI_MAX_SETS) {
            cli_error("--%.*s: at most %d", name_length(option), option->name, CLI_MAX_SETS);
            return CLI_USAGE;
        }
        ((struct cli_list *)field)->item[((struct cli_list *)field)->n++] = value;
        return CLI_DONE;
    }
    cli_error("--%.*s=%s: expected %s", name_length(option), option->name, value, expected(option));
    return CLI_USAGE;
}

/* Operands of the usage text: how many it names, and how many of them are in brackets. */
static void count_operands(const char *text, int *most, int *optional)
{
    *most = *optional = 0;
    if (strstr(text, "...")) { /* one or more */
        *most = CLI_MAX_OPERANDS;
        *optional = CLI_MAX_OPERANDS - 1;
        return;
    }
    for (const char *c = text; *c; c++)
        if ((c == text || c[-1] == ' ')) {
            (*most)++;
            *optional += *c == '[';
        }
}

/* SQL among the operands is after the first, and says itself what an empty one means. */
static int check_not_empty(const struct cli_cmd *cmd, const struct cli_options *o)
{
    int files = strstr(cmd->operands, "SQL") ? 1 : o->n_operands;
    for (int i = 0; i < files && i < o->n_operands; i++)
        if (!*o->operand[i]) { /* as of a variable of a script that is not set: plan "$RUN" */
            cli_error("%s: an operand is empty, expected %s (is a variable of the script not set?)",
                      cmd->name, cmd->operands);
            return CLI_USAGE;
        }
    return CLI_DONE;
}

static int check_operands(const struct cli_cmd *cmd, const struct cli_options *o)
{
    int most, optional;
    count_operands(cmd->operands, &most, &optional);
    if (o->n_operands < most - optional || o->n_operands > most) {
        cli_error("%s: usage: switchyard %s%s%s%s", cmd->name, cmd->name, *cmd->options ? " [OPTIONS]" : "",
                  *cmd->operands ? " " : "", cmd->operands);
        return CLI_USAGE;
    }
    return check_not_empty(cmd, o);
}

static int parse_option(const struct cli_cmd *cmd, const char *given, int argc, char **argv, int *i,
                        struct cli_options *o)
{
    const char *name = given + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct option *option = find_option(cmd, name, length);
    if (!option) {
        unknown_option(cmd, given);
        return CLI_USAGE;
    }
    const char *value = equals ? equals + 1 : NULL;
    if (option->kind == FLAG && value) {
        cli_error("--%.*s takes no value", name_length(option), option->name);
        return CLI_USAGE;
    }
    if (option->kind != FLAG && !value) {
        if (*i + 1 >= argc) {
            cli_error("--%.*s needs %s", name_length(option), option->name, option->argument);
            return CLI_USAGE;
        }
        value = argv[++*i];
    }
    return store(option, value, o);
}

/* Run directories among the operands, A and B of diff too: what is there is taken by its name, and SQL is none (as
 * cmd_metrics.c has it). */
static int put_jobs(const struct cli_cmd *cmd, struct cli_options *o)
{
    int runs = strstr(cmd->operands, "RUN") || !strncmp(cmd->operands, "A ", 2);
    int status = o->run_dir ? cli_job_path("--run-dir", &o->run_dir) : CLI_DONE;
    for (int i = 0; runs && i < o->n_operands && !status; i++)
        if (access(o->operand[i], F_OK) && !(i && strpbrk(o->operand[i], " \t\n(;")))
            status = cli_job_path(cmd->name, &o->operand[i]);
    return status;
}

/* "-o" as "--output" for a command that takes it; everything else as it is. */
static const char *long_form(const struct cli_cmd *cmd, const char *given)
{
    for (size_t i = 0; i < SYI_COUNT(letters); i++) {
        const char *name = letters[i].name + 2;
        if (!strcmp(given, letters[i].letter) && find_option(cmd, name, strlen(name))) return letters[i].name;
    }
    return given;
}

static void set_defaults(struct cli_options *o)
{
    memset(o, 0, sizeof *o);
    o->backend = "cpu";
    o->comm = "auto";
    o->checkpoint = SYI_CHECKPOINT_LATEST;
    o->from = o->to = -1;
}

int cli_parse(const struct cli_cmd *cmd, int argc, char **argv, struct cli_options *o, int *finished)
{
    int only_operands = 0;
    *finished = 0;
    set_defaults(o);
    for (int i = 0; i < argc; i++) {
        const char *given = only_operands ? argv[i] : long_form(cmd, argv[i]);
        if (!only_operands && !strcmp(argv[i], "--")) {
            only_operands = 1;
        } else if (!only_operands && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
            cli_print_help(cmd);
            *finished = 1;
            return CLI_DONE;
        } else if (!only_operands && !strncmp(given, "--", 2)) {
            int status = parse_option(cmd, given, argc, argv, &i, o);
            if (status) return status;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
            unknown_option(cmd, argv[i]);
            return CLI_USAGE;
        } else if (o->n_operands < CLI_MAX_OPERANDS) {
            o->operand[o->n_operands++] = argv[i];
        } else {
            o->n_operands++; /* more than any command takes */
            return check_operands(cmd, o);
        }
    }
    int status = check_operands(cmd, o);
    return status ? status : put_jobs(cmd, o);
}

static int has_default(const struct option *option, const struct cli_options *o)
{
    struct cli_options unset;
    set_defaults(&unset);
    const void *field = (const char *)o + option->offset, *was = (const char *)&unset + option->offset;
    if (option->kind == LIST) return !((const struct cli_list *)field)->n;
    if (option->kind != TEXT)
        return !memcmp(field, was,
                       option->kind == FLAG || option->kind == NUMBER ? sizeof(int) : sizeof(int64_t));
    const char *here = *(const char *const *)field, *there = *(const char *const *)was;
    return here == there || (here && there && !strcmp(here, there));
}

/* As it could be typed. */
static void print_given(const struct option *option, const struct cli_options *o, struct syi_text *text)
{
    const void *field = (const char *)o + option->offset;
    const struct cli_list *list = field;
    char number[SYI_NUMBER_BYTES];
    int64_t step;
    if (option->kind != LIST) syi_text_printf(text, " --%.*s", name_length(option), option->name);
    switch (option->kind) {
    case FLAG: break;
    case TEXT: syi_text_printf(text, " %s", *(const char *const *)field); break;
    case NUMBER: syi_text_printf(text, " %d", *(const int *)field); break;
    case FACTOR:
        syi_format_double(number, *(const double *)field);
        syi_text_printf(text, " %s", number);
        break;
    case COUNT:
    case STEP:
        step = *(const int64_t *)field;
        if (step == SYI_CHECKPOINT_BEST)
            syi_text_puts(text, " best");
        else
            syi_text_printf(text, " %" PRId64, step);
        break;
    case LIST:
        for (int i = 0; i < list->n; i++)
            syi_text_printf(text, " --%.*s %s", name_length(option), option->name, list->item[i]);
    }
}

void cli_print_command(const struct cli_cmd *cmd, const struct cli_options *o,
                       char command[CLI_COMMAND_BYTES])
{
    static const char apart[] = "comm threads set quiet beams temperature decodes scores";
    memset(command, 0, CLI_COMMAND_BYTES);
    struct syi_text text = syi_text_in(command, CLI_COMMAND_BYTES);
    syi_text_puts(&text, cmd->name);
    for (size_t i = 0; i < SYI_COUNT(table); i++)
        if (has_word(cmd->options, table[i].name, strlen(table[i].name)) &&
            !has_word(apart, table[i].name, strlen(table[i].name)) && !has_default(&table[i], o))
            print_given(&table[i], o, &text);
}

/* An option's help stands in a column of its own; a long name goes into it. */
static void print_option(const struct option *option)
{
    enum { COLUMN = 29 };
    char name[64];
    int column;
    snprintf(name, sizeof name, "--%.*s%s%s", name_length(option), option->name, option->argument ? " " : "",
             option->argument ? option->argument : "");
    column = printf("  %-*s ", COLUMN - 3, name);
    cli_wrap(stdout, option->help, strlen(option->help), (size_t)column, COLUMN);
}

void cli_print_help(const struct cli_cmd *cmd)
{
    char usage[200];
    int length = snprintf(usage, sizeof usage, "usage: switchyard %s%s%s%s", cmd->name,
                          *cmd->options ? " [OPTIONS]" : "", *cmd->operands ? " " : "", cmd->operands);
    cli_wrap(stdout, usage, (size_t)length, 0, 18);
    putchar('\n');
    cli_print_paragraphs(cmd->help);
    if (cmd->details) putchar('\n'), cli_print_paragraphs(cmd->details);
    if (*cmd->options) printf("\noptions:\n");
    for (size_t i = 0; i < SYI_COUNT(table); i++)
        if (has_word(cmd->options, table[i].name, strlen(table[i].name))) print_option(&table[i]);
}
