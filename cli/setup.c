/* SPDX-License-Identifier: Apache-2.0 */
/* From options to a configuration and a launch. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/packed.h"
#include "cli/cli.h"
#include "train/launch/first_reads.h"
#include "train/launch/run_dir.h"

/* Options that are short for a key; with the key's own limits. */
static int apply_short(const struct cli_options *o, struct syi_config *config, struct sy_error *err)
{
    const struct {
        const char *key, *value; /* value NULL: not given */
    } keys[] = {{"decode.beams", o->beams},
                {"decode.temperature", o->temperature},
                {"decode.num_decodes", o->decodes}};
    int status = SY_OK;
    for (size_t i = 0; !status && i < SYI_COUNT(keys); i++) {
        if (!keys[i].value) continue;
        char *text = syi_format("%s=%s", keys[i].key, keys[i].value);
        status = text ? syi_config_set(config, text, err) : syi_error(err, SY_ENOMEM, "out of memory");
        syi_free(text);
    }
    if (o->scores) config->decode.scores = true;
    return status;
}

/* As the library has it: what no draw would look at is refused. What the run says of draws is kept for one that draws. */
static int check_draws(const struct cli_options *o, const struct syi_config *config, struct sy_error *err)
{
    const struct syi_decode_part *d = &config->decode;
    for (int i = 0; i < o->set.n && d->temperature == 0; i++) {
        const char *given = o->set.item[i] + strspn(o->set.item[i], " \t");
        int counts = !strncmp(given, "decode.topk", 11)   ? d->topk > 0
                     : !strncmp(given, "decode.topp", 11) ? d->topp > 0
                                                          : 0;
        if (counts)
            return syi_error(
                err, SY_EINVAL,
                "--set %s: decode.temperature is 0, so nothing is drawn; set it too, or leave this out",
                given);
    }
    return SY_OK;
}

/* Keys of a run widen the search for its outputs; two options that contradict each other are a slip. */
static int check_beams(const struct cli_options *o, const struct syi_config *config, struct sy_error *err)
{
    const struct syi_decode_part *d = &config->decode;
    if (!o->beams || !o->decodes || d->temperature > 0 || d->num_decodes <= d->beams) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "--beams %s and --decodes %s: a search gives as many outputs as it has beams at most; give "
        "more beams or leave --beams out",
        o->beams, o->decodes);
}

static int apply_sets(const struct cli_options *options, struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; !status && i < options->set.n; i++)
        status = syi_config_set(config, options->set.item[i], err);
    if (!status) status = apply_short(options, config, err);
    if (!status) status = check_draws(options, config, err);
    if (!status) status = check_beams(options, config, err);
    return status ? status : syi_config_validate(config, err);
}

/* What rank 0 needs to read a configuration. */
struct reading {
    const struct cli_options *options;
    int own_vocabularies;   /* 1: a run's are the copies that it keeps */
    cli_settings_fn change; /* NULL: a run's settings are taken as they are */
    void *arg;
};

/* The sizes of the mesh that a run keeps are of the ranks it was trained on. They hold where there are as many
 * now and the command line names none; else they follow from the number of ranks. */
static void free_mesh(const struct cli_options *options, struct syi_config *config)
{
    struct syi_mesh mesh;
    int given = 0, ranks = options->ranks ? options->ranks : options->devices;
    if (!ranks) ranks = cli_world()->ranks;
    for (int i = 0; i < options->set.n; i++)
        given |= !strncmp(options->set.item[i], "mesh.", 5) && strncmp(options->set.item[i], "mesh.zero", 9);
    if (!given && !syi_mesh_new(&mesh, ranks, (int)config->mesh.data, (int)config->mesh.expert,
                                (int)config->mesh.model, (int)config->moe.num_experts, NULL))
        return;
    config->mesh.data = config->mesh.expert = config->mesh.model = 0;
}

static int read_stored(void *arg, const char *run_dir, struct syi_config *config, struct sy_error *err)
{
    const struct reading *reading = arg;
    int status = syi_run_dir_read_config(run_dir, config, err);
    if (!status && reading->change) status = reading->change(reading->arg, config, err);
    if (!status && reading->own_vocabularies) status = syi_run_dir_use_vocabularies(run_dir, config, err);
    if (!status) free_mesh(reading->options, config);
    return status;
}

static int load_stored(const char *run_dir, struct reading *reading, struct syi_config *config,
                       struct sy_error *err)
{
    int status = syi_world_load(cli_world(), run_dir, read_stored, reading, config, err);
    return status ? status : apply_sets(reading->options, config, err);
}

int cli_is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* path "": the defaults alone. */
static int read_run_file(void *arg, const char *path, struct syi_config *config, struct sy_error *err)
{
    if (*path && (cli_is_folder(path) || syi_packed_is(path))) return read_stored(arg, path, config, err);
    int status = syi_config_defaults(config, err);
    return status || !*path ? status : syi_config_load(config, path, err);
}

int cli_load_config(const char *run_file, const struct cli_options *options, struct syi_config *config,
                    struct sy_error *err)
{
    struct reading reading = {.options = options, .own_vocabularies = 1};
    int status = syi_world_load(cli_world(), run_file ? run_file : "", read_run_file, &reading, config, err);
    return status ? status : apply_sets(options, config, err);
}

int cli_load_run(const char *run_dir, const struct cli_options *options, struct syi_config *config,
                 struct sy_error *err)
{
    return cli_load_run_as(run_dir, options, NULL, NULL, config, err);
}

int cli_load_run_as(const char *run_dir, const struct cli_options *options, cli_settings_fn change, void *arg,
                    struct syi_config *config, struct sy_error *err)
{
    struct reading reading = {.options = options, .own_vocabularies = 1, .change = change, .arg = arg};
    return load_stored(run_dir, &reading, config, err);
}

int cli_load_to_resume(const char *run_dir, const struct cli_options *options, struct syi_config *config,
                       struct sy_error *err)
{
    struct reading reading = {.options = options};
    return load_stored(run_dir, &reading, config, err);
}

int cli_load_failed(const struct sy_error *err)
{
    return err->code == SY_EFORMAT ? cli_fail(err) : cli_usage(err);
}

int cli_weights_dtype(const char *name, enum syi_safetensors_dtype *dtype, struct sy_error *err)
{
    *dtype = SYI_SAFETENSORS_F32;
    if (!name || !strcmp(name, "float32")) return SY_OK;
    *dtype = SYI_SAFETENSORS_BF16;
    if (!strcmp(name, "bfloat16")) return SY_OK;
    return syi_error(err, SY_EINVAL, "--dtype=%s: expected float32 or bfloat16", name);
}

int cli_sets_threads(const char *assignment)
{
    static const char key[] = "cpu.threads";
    const char *at = assignment + strspn(assignment, " \t");
    if (strncmp(at, key, sizeof key - 1)) return 0;
    at += sizeof key - 1;
    return at[strspn(at, " \t")] == '=';
}

struct syi_launch cli_launch(const struct cli_options *options, const struct syi_config *config)
{
    return (struct syi_launch){.backend = options->backend,
                               .comm = options->comm,
                               .ranks = options->ranks,
                               .world = cli_world(),
                               .threads = options->threads,
                               .config = config};
}

int cli_check_launch(const char *command, const struct cli_options *options, const struct syi_config *config,
                     int numbers)
{
    struct syi_launch launch = cli_launch(options, config);
    struct sy_error err = {0};
    int status = syi_launch_check(&launch, &err), answer = CLI_DONE;
    if (status == SY_EBACKEND) answer = cli_fail(&err); /* the request is fine, the plugin is not */
    if (status && !answer) answer = cli_usage(&err);
    if (!status && numbers && !strcmp(options->backend, "null")) {
        cli_error(
            "%s: backend null computes nothing: take it for plan and explain, and another --backend here",
            command);
        answer = CLI_USAGE;
    }
    answer = cli_world_agree(answer);
    return answer ? answer : cli_world_same(config);
}
