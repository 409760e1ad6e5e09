/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "train/launch/move_file.h"

enum { FILE_BYTES = 8192 }; /* a request has less */

static const char request_name[] = "move", answer_name[] = "move.answer";

/* ---- text ---- */

/* The line at *at without its end, and *at after it; 0: it has no end, or is too long. */
static int take_line(const char **at, char line[SYI_MOVE_LINE + 8])
{
    size_t n = strcspn(*at, "\n");
    if ((*at)[n] != '\n' || n >= SYI_MOVE_LINE + 8) return 0;
    memcpy(line, *at, n);
    line[n] = '\0';
    *at += n + 1;
    return 1;
}

/* What follows the word that a line begins with and a blank; NULL: it begins with another one. */
static const char *after_word(const char *line, const char *word)
{
    size_t n = strlen(word);
    return !strncmp(line, word, n) && line[n] == ' ' ? line + n + 1 : NULL;
}

/* 0: there is no room for it. */
static int keep(const char *value, char *to, size_t bytes)
{
    if (!*value || strlen(value) >= bytes) return 0;
    strcpy(to, value);
    return 1;
}

static int parse_line(const char *line, struct syi_move *move)
{
    const char *value;
    if ((value = after_word(line, "id"))) return keep(value, move->id, sizeof move->id);
    if ((value = after_word(line, "backend"))) return keep(value, move->backend, sizeof move->backend);
    if (!(value = after_word(line, "set")) || move->n_sets == SYI_MOVE_SETS) return 0;
    return keep(value, move->set[move->n_sets++], SYI_MOVE_LINE);
}

int syi_move_parse(const char *text, struct syi_move *move, struct sy_error *err)
{
    char line[SYI_MOVE_LINE + 8];
    *move = (struct syi_move){0};
    while (strcspn(text, "\n") < strlen(text)) {
        int whole = take_line(&text, line);
        if (whole && !strcmp(line, "end") && move->id[0]) return SY_OK;
        if (!whole || !parse_line(line, move))
            return syi_error(err, SY_EINVAL, "not a request of `switchyard move`: %.60s",
                             whole ? line : text);
    }
    return syi_error(err, SY_ENOENT, "a request of `switchyard move` without its end");
}

static void print(const struct syi_move *move, struct syi_text *text)
{
    syi_text_printf(text, "id %s\n", move->id);
    if (move->backend[0]) syi_text_printf(text, "backend %s\n", move->backend);
    for (int i = 0; i < move->n_sets; i++) syi_text_printf(text, "set %s\n", move->set[i]);
    syi_text_puts(text, "end\n");
}

/* ---- what may be asked ---- */

static int check_key(const char *set, struct sy_error *err)
{
    static const char *const sections[] = {"cpu.", "cuda.", "device.", "memory."};
    static const char threads[] = "cpu.threads";
    int length = (int)strcspn(set, " \t="); /* blanks may stand before the '=' */
    if (length == sizeof threads - 1 && !strncmp(set, threads, sizeof threads - 1))
        return syi_error(err, SY_EINVAL,
                         "cpu.threads stays while a run goes on: stop it, then --resume with others");
    for (size_t i = 0; i < SYI_COUNT(sections); i++)
        if (!strncmp(set, sections[i], strlen(sections[i]))) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "%.*s stays while a run goes on: a move sets keys of cpu, cuda, device and memory",
                     length, set);
}

int syi_move_apply(const struct syi_move *move, struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    if (!strcmp(move->backend, "null"))
        return syi_error(err, SY_EINVAL, "backend null computes nothing: a training cannot move to it");
    for (int i = 0; !status && i < move->n_sets; i++) {
        status = check_key(move->set[i], err);
        if (!status) status = syi_config_set(config, move->set[i], err);
    }
    return status ? status : syi_config_validate(config, err);
}

/* ---- files ---- */

/* Up to FILE_BYTES - 1 bytes; 0: it cannot be read. */
static int read_file(const char *run_dir, const char *name, char text[FILE_BYTES])
{
    char *path = syi_format("%s/%s", run_dir, name);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t n = 0;
    int failed = fd < 0 || syi_read_at(fd, path, 0, text, FILE_BYTES - 1, &n, NULL);
    if (fd >= 0) close(fd);
    syi_free(path);
    text[n] = '\0';
    return !failed;
}

static int remove_file(const char *run_dir, const char *name)
{
    char *path = syi_format("%s/%s", run_dir, name);
    int failed = !path || unlink(path);
    syi_free(path);
    return !failed;
}

/* ---- who asks ---- */

static int write_request(const char *path, const struct syi_text *text, struct sy_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return syi_error(
            err, SY_EBUSY,
            "%s is there: the run has another request to look at; where nobody waits for it, remove it",
            path);
    if (fd < 0) return syi_error_system(err, "cannot create %s", path);
    int status = syi_write_all(fd, path, text->data, text->length, err);
    if (!status && fsync(fd)) status = syi_error_system(err, "cannot sync %s", path);
    if (close(fd) && !status) status = syi_error_system(err, "cannot close %s", path);
    if (status) unlink(path);
    return status;
}

int syi_move_ask(const char *run_dir, struct syi_move *move, struct sy_error *err)
{
    struct syi_text text = {0};
    struct timespec now;
    char host[24] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    gethostname(host, sizeof host - 1);
    snprintf(move->id, sizeof move->id, "%.20s-%" PRId64 "-%" PRId64 "-%ld", *host ? host : "host",
             (int64_t)getpid(), (int64_t)now.tv_sec, now.tv_nsec);
    print(move, &text);
    char *path = syi_format("%s/%s", run_dir, request_name);
    int status = syi_text_status(&text, err);
    if (!status && !path) status = syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = write_request(path, &text, err);
    syi_free(path);
    syi_text_free(&text);
    return status;
}

enum syi_move_state syi_move_look(const char *run_dir, const struct syi_move *move, char *text, size_t bytes)
{
    char file[FILE_BYTES], id[SYI_MOVE_WORD + 8];
    const char *what;
    int length = snprintf(id, sizeof id, "id %s\n", move->id);
    if (!read_file(run_dir, answer_name, file) || strncmp(file, id, (size_t)length) != 0)
        return SYI_MOVE_WAITS;
    char *line = file + length;
    line[strcspn(line, "\n")] = '\0';
    what = after_word(line, "done");
    enum syi_move_state state = what ? SYI_MOVE_DONE : SYI_MOVE_REFUSED;
    if (!what) what = after_word(line, "refused");
    snprintf(text, bytes, "%s", what ? what : line);
    return state;
}

int syi_move_withdraw(const char *run_dir, const struct syi_move *move)
{
    char file[FILE_BYTES];
    struct syi_move there;
    if (!read_file(run_dir, request_name, file) || syi_move_parse(file, &there, NULL) ||
        strcmp(there.id, move->id) != 0)
        return 0;
    return remove_file(run_dir, request_name);
}

/* ---- the run ---- */

int64_t syi_move_time(const char *run_dir)
{
    char path[SYI_CONFIG_STRING + sizeof request_name];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", run_dir, request_name);
    return stat(path, &info) ? 0 : syi_modified(&info);
}

int syi_move_receive(const char *run_dir, struct syi_move *move, struct sy_error *err)
{
    char file[FILE_BYTES];
    *move = (struct syi_move){0};
    if (!read_file(run_dir, request_name, file)) return SY_ENOENT;
    int status = syi_move_parse(file, move, err);
    if (status) return status; /* what is no request stays: it may be a file of the user's */
    if (remove_file(run_dir, request_name)) return SY_OK;
    return syi_error_system(err, "cannot remove the request %s/%s", run_dir, request_name);
}

int syi_move_answer(const struct syi_run_dir *dir, const struct syi_move *move, int done, const char *text,
                    struct sy_error *err)
{
    struct syi_text answer = {0};
    syi_text_printf(&answer, "id %s\n%s %s\n", move->id, done ? "done" : "refused", text);
    int status = syi_run_dir_write_text(dir, answer_name, &answer, err);
    syi_text_free(&answer);
    return status;
}

void syi_move_clean(const char *run_dir)
{
    char file[FILE_BYTES];
    struct syi_move late;
    if (read_file(run_dir, request_name, file) && syi_move_parse(file, &late, NULL) != SY_EINVAL)
        remove_file(run_dir, request_name);
    remove_file(run_dir, answer_name);
}
