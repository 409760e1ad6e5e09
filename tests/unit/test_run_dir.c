/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: names, files, and a lock that holds against the living, not against the dead. */
#include "config.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "train/launch/move_file.h"
#include "train/launch/run_dir.h"
#include "train/launch/run_state.h"

static char folder[64], path[96], lock[128];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/sy-run-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/a/run", folder);
    snprintf(lock, sizeof lock, "%s/lock", path);
}

static void remove_folder(void)
{
    char command[192];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(run_dir, .init = make_folder, .fini = remove_folder);

static void put_lock(const char *text)
{
    cr_assert_eq(syi_make_folders(path, NULL), SY_OK);
    cr_assert_eq(syi_file_write(lock, text, strlen(text), NULL), SY_OK);
}

static void check_file(const char *name, const char *words)
{
    char file[160], *text = NULL;
    size_t bytes;
    snprintf(file, sizeof file, "%s/%s", path, name);
    cr_assert_eq(syi_file_read(file, &text, &bytes, NULL), SY_OK, "%s", file);
    cr_expect(strstr(text, words) != NULL, "%s holds \"%s\", not \"%s\"", file, text, words);
    syi_free(text);
}

static const struct syi_lock_options briefly = {.watch = 1}; /* does not watch a silent owner for long */

static void check_refused(const char *words)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    cr_assert_eq(syi_run_dir_open(path, &briefly, &dir, &err), SY_EBUSY, "%s", err.text);
    cr_expect(strstr(err.text, words) != NULL, "\"%s\" lacks \"%s\"", err.text, words);
    cr_expect(strstr(err.text, path) != NULL);
    cr_expect_eq(dir.locked, 0);
    syi_run_dir_close(&dir);
    cr_expect_eq(access(lock, F_OK), 0, "the lock is still there");
}

static void check_taken(const char *words)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    cr_assert_eq(syi_run_dir_open(path, &briefly, &dir, &err), SY_OK, "%s", err.text);
    if (words) check_file("log", words);
    syi_run_dir_close(&dir);
    cr_expect_neq(access(lock, F_OK), 0, "the lock was removed");
}

static void put_file(const char *name, const char *text)
{
    char file[160];
    snprintf(file, sizeof file, "%s/%s", path, name);
    cr_assert_eq(syi_make_folders(path, NULL), SY_OK);
    cr_assert_eq(syi_file_write(file, text, strlen(text), NULL), SY_OK);
}

Test(run_dir, no_file_of_the_users_is_written_over)
{
    static const char *const names[] = {"status", "init.txt", "move.answer"};
    static const char *const ours[] = {"failed\n", "init: 2 of 3\n", "id x\n"};
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        struct syi_run_dir dir;
        struct sy_error err = {0};
        put_file(names[i], "mine\n");
        cr_expect_eq(syi_run_dir_open(path, &briefly, &dir, &err), SY_EEXIST);
        cr_expect(strstr(err.text, names[i]) != NULL, "%s", err.text);
        cr_expect_neq(access(lock, F_OK), 0, "a lock is left");
        check_file(names[i], "mine\n");
        put_file(names[i], ours[i]); /* of an attempt that did not come to its run.conf */
        check_taken(NULL);
    }
    put_file("run.conf", "");
    put_file("status", "mine\n"); /* of a run, whatever has become of it */
    check_taken(NULL);
}

Test(run_dir, holds_what_was_written)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    static struct syi_config config, back;
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK);
    cr_assert_eq(syi_config_set(&config, "train.steps=77", &err), SY_OK);
    cr_assert_eq(syi_run_dir_exists(path), 0);
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, &err), SY_OK, "%s", err.text);
    cr_expect_eq(syi_run_dir_exists(path), 0, "a locked folder without run.conf holds no run");
    cr_assert_eq(syi_run_dir_write_config(&dir, &config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_run_dir_status(&dir, "running", &err), SY_OK, "%s", err.text);
    syi_run_dir_log(&dir, "first line");
    syi_run_dir_log(&dir, "second line");
    syi_run_dir_close(&dir);
    cr_expect_eq(syi_run_dir_exists(path), 1);
    check_file("status", "running\n");
    check_file("log", " first line\n");
    check_file("log", " second line\n");
    cr_assert_eq(syi_run_dir_read_config(path, &back, &err), SY_OK, "%s", err.text);
    cr_expect_eq(back.train.steps, 77);
}

/* A disk that is full for a while. */
Test(run_dir, the_log_says_where_lines_are_missing)
{
    const char *whole = " before\n", *torn = " lost, and more th\n";
    struct syi_run_dir dir;
    struct rlimit before, full;
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    syi_run_dir_log(&dir, "before");
    cr_assert(getrlimit(RLIMIT_FSIZE, &before) == 0);
    full = (struct rlimit){2 * strlen("2000-01-01 00:00:00") + strlen(whole) + strlen(torn) - 1,
                           before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(setrlimit(RLIMIT_FSIZE, &full) == 0);
    syi_run_dir_log(&dir, "lost, and more than there is room for");
    syi_run_dir_log(&dir, "lost");
    cr_assert(setrlimit(RLIMIT_FSIZE, &before) == 0);
    syi_run_dir_log(&dir, "after");
    syi_run_dir_log(&dir, "later");
    syi_run_dir_close(&dir);
    check_file("log", whole);
    check_file("log", torn);
    check_file("log", " lines are missing here, which could not be written\n");
    check_file("log", " after\n");
    check_file("log", "after\n2"); /* that is told once */
}

/* Else a run whose run.conf cannot be read now would be written over. */
Test(run_dir, what_cannot_be_looked_at_counts_as_a_run)
{
    static struct syi_config config;
    struct sy_error err = {0};
    char file[160];
    cr_assert_eq(syi_make_folders(path, NULL), SY_OK);
    cr_expect_eq(syi_run_dir_exists(path), 0);
    snprintf(file, sizeof file, "%s/run.conf", path);
    cr_assert_eq(symlink("run.conf", file), 0);
    cr_expect_eq(syi_run_dir_exists(path), 1);
    cr_expect_neq(syi_run_dir_read_config(path, &config, &err), SY_OK);
    cr_expect(strstr(err.text, "run.conf: Too many levels") != NULL, "%s", err.text);
}

Test(run_dir, reading_what_is_no_run)
{
    static struct syi_config config;
    struct sy_error none = {0}, empty = {0};
    cr_assert_eq(syi_run_dir_read_config(path, &config, &none), SY_ENOENT);
    cr_expect(strstr(none.text, path) != NULL, "%s", none.text);
    cr_assert_eq(syi_run_dir_read_config(folder, &config, &empty), SY_ENOENT);
    cr_expect(strstr(empty.text, "holds no run") != NULL, "%s", empty.text);
}

/* The inode of the folder it made, 0 for none. */
static unsigned long make_run(void)
{
    char run[SYI_CONFIG_STRING];
    struct stat info;
    int made = !syi_run_dir_make("g2p", run, sizeof run, NULL) && !strncmp(run, "runs/g2p-20", 11);
    return made && !stat(run, &info) && S_ISDIR(info.st_mode) ? (unsigned long)info.st_ino : 0;
}

Test(run_dir, runs_that_start_together_have_folders_of_their_own)
{
    enum { CHILDREN = 8, EACH = 40, ALL = CHILDREN * EACH };
    unsigned long made[ALL];
    int results[2];
    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(pipe(results), 0);
    for (int i = 0; i < CHILDREN; i++) {
        if (fork()) continue;
        for (int n = 0; n < EACH; n++) {
            unsigned long inode = make_run();
            if (write(results[1], &inode, sizeof inode) != sizeof inode) _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < ALL; i++) {
        cr_assert_eq(read(results[0], &made[i], sizeof made[i]), sizeof made[i]);
        cr_expect_neq(made[i], 0, "no folder was made");
        for (int j = 0; j < i; j++) cr_expect_neq(made[i], made[j], "two runs have one folder");
    }
    while (wait(NULL) > 0) continue;
}

Test(run_dir, names_that_are_no_folder)
{
    char small[12];
    cr_assert_eq(chdir(folder), 0);
    cr_expect_eq(syi_run_dir_make("g2p", small, sizeof small, NULL), SY_EINVAL);
}

/* ---- the lock ---- */

Test(run_dir, a_live_lock_names_its_owner)
{
    struct syi_run_dir dir;
    char words[64];
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    snprintf(words, sizeof words, "in use by process %d on this host", (int)getpid());
    check_refused(words);
    syi_run_dir_close(&dir);
    check_taken(NULL);
}

Test(run_dir, another_process_is_refused_and_inherits_after_a_kill)
{
    int ready[2];
    char byte, words[64];
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct syi_run_dir dir;
        if (syi_run_dir_open(path, NULL, &dir, NULL) || write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    snprintf(words, sizeof words, "process %d on this host", (int)child);
    check_refused(words);
    kill(child, SIGKILL);
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0); /* dead, not yet collected */
    snprintf(words, sizeof words, "took over the lock of process %d", (int)child);
    check_taken(words);
    waitpid(child, NULL, 0);
}

static void put_owner(const char *host, long pid, long start)
{
    char text[320];
    snprintf(text, sizeof text, "%s %ld %ld\n", host, pid, start);
    put_lock(text);
}

static const char *this_host(void)
{
    static char host[256];
    cr_assert_eq(gethostname(host, sizeof host - 1), 0);
    return host;
}

Test(run_dir, a_dead_owner_is_followed)
{
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    put_owner(this_host(), child, 5);
    check_taken("which runs no more");
}

Test(run_dir, a_pid_in_use_again_is_not_the_owner)
{
    if (access("/proc/self/stat", R_OK)) cr_skip("no /proc: start times are unknown");
    put_owner(this_host(), getpid(), 1);
    check_taken("which runs no more");
    put_owner(this_host(), getpid(), 0); /* start unknown: the pid decides */
    check_refused("in use by process");
}

/* ---- another host: only its heartbeat can be seen ---- */

static void set_age(int seconds)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    cr_assert_eq(utimensat(AT_FDCWD, lock, times, 0), 0);
}

static void take_at_a_word(const char *words)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    struct syi_lock_options word = {.takeover = 1};
    cr_assert_eq(syi_run_dir_open(path, &word, &dir, &err), SY_OK, "%s", err.text);
    check_file("log", words);
    syi_run_dir_close(&dir);
}

Test(run_dir, a_lock_of_another_host)
{
    put_owner("some-other-host", 1, 1);
    check_refused("on host some-other-host");
    set_age(300);
    check_refused("last heartbeat was 30");
    check_refused("start again with --takeover");
    take_at_a_word("took over the lock of process 1 on host some-other-host, as --takeover asks");
    put_owner("some-other-host", 2, 1);
    set_age(660);
    check_taken("took over the lock of process 2 on host some-other-host, whose last heartbeat was 66");
}

/* The clock of the files was set forward: the time of every lock is old, until the next heartbeat. */
Test(run_dir, an_owner_lives_whose_time_is_old)
{
    put_owner("some-other-host", 1, 1);
    set_age(7200);
    pid_t child = fork();
    if (child == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        set_age(3600); /* the next comes by a clock that lags behind */
        nanosleep(&(struct timespec){.tv_nsec = 800000000}, NULL);
        _exit(utimensat(AT_FDCWD, lock, NULL, 0) != 0);
    }
    double begin = syi_seconds();
    check_refused("on host some-other-host, whose last heartbeat was ");
    cr_expect(syi_seconds() - begin > 1, "it did not watch");
    int status = 1;
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
    set_age(7200);
    begin = syi_seconds();
    check_taken("took over the lock of process 1 on host some-other-host, whose last heartbeat was 72");
    cr_expect(syi_seconds() - begin > 1, "it did not watch");
}

Test(run_dir, a_lock_of_the_same_batch_job)
{
    static const char *const variables[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    for (size_t i = 0; i < SYI_COUNT(variables); i++) unsetenv(variables[i]);
    for (size_t i = 0; i < SYI_COUNT(variables); i++) {
        char text[128];
        snprintf(text, sizeof text, "some-other-host 1 1 %s=41\n", variables[i]);
        put_lock(text);
        set_age(60);
        check_refused("some-other-host"); /* we are in no job */
        cr_assert_eq(setenv(variables[i], "42", 1), 0);
        check_refused("some-other-host");
        cr_assert_eq(setenv(variables[i], "41", 1), 0);
        set_age(5); /* two hosts of one job may have started the same run: this one lives */
        check_refused("some-other-host");
        set_age(60);
        check_taken("of the same batch job, whose last heartbeat was 6");
        cr_assert_eq(unsetenv(variables[i]), 0);
    }
}

/* A container may have the name of its host: there the pid is of another process or of none. */
Test(run_dir, a_lock_of_another_pid_namespace)
{
    struct syi_lock_state state;
    struct stat space;
    char text[400];
    if (stat("/proc/self/ns/pid", &space)) cr_skip("no /proc: PID namespaces are unknown");
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    snprintf(text, sizeof text, "%s %d 5 - -1 %llu\n", this_host(), (int)child,
             (unsigned long long)space.st_ino + 1);
    put_lock(text);
    check_refused("in another PID namespace of host");
    syi_run_lock_look(path, &state);
    cr_expect(state.held && !state.here && !state.alive);
    set_age(60); /* its container was started again */
    check_taken("in another PID namespace of host");
    snprintf(text, sizeof text, "%s %d 5 - -1 %llu\n", this_host(), (int)child,
             (unsigned long long)space.st_ino);
    put_lock(text);
    check_taken("which runs no more");
}

Test(run_dir, the_owner_gives_heartbeats)
{
    struct syi_run_dir dir;
    struct stat info;
    cr_assert_eq(setenv("SLURM_JOB_ID", "41", 1), 0);
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    check_file("lock", " SLURM_JOB_ID=41 0 "); /* and how often Slurm started it again */
    set_age(660);
    cr_assert_eq(syi_run_dir_beat(&dir, 100, NULL), SY_OK);
    cr_expect(!stat(lock, &info) && info.st_mtime < time(NULL) - 600, "a heartbeat before its time");
    cr_assert_eq(syi_run_dir_beat(&dir, 0, NULL), SY_OK);
    cr_expect(!stat(lock, &info) && info.st_mtime > time(NULL) - 60, "no heartbeat");
    syi_run_dir_close(&dir);
}

/* Whatever the run is at: a long step, or a program that it waits for. */
Test(run_dir, heartbeats_go_on_by_themselves)
{
    struct syi_run_dir dir;
    struct stat info;
    const struct syi_lock_options options = {.beat = 0.01};
    int beats = 0;

    cr_assert_eq(syi_run_dir_open(path, &options, &dir, NULL), SY_OK);
    for (int look = 0; look < 1000 && beats < 2; look++) {
        if (!look || beats) set_age(660);
        usleep(10000);
        beats += !stat(lock, &info) && info.st_mtime > time(NULL) - 60;
    }
    cr_expect_eq(beats, 2);
    syi_run_dir_close(&dir);
    cr_expect_neq(access(lock, F_OK), 0, "the lock stays");
}

/* It was silent for too long, as when its host was suspended. */
Test(run_dir, an_owner_whose_lock_was_taken_over_writes_no_more)
{
    struct syi_run_dir dir;
    struct sy_error err = {0}, again = {0};
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    cr_assert_eq(syi_run_dir_status(&dir, "running", NULL), SY_OK);
    put_owner("some-other-host", 7, 1);
    cr_expect_eq(syi_run_dir_beat(&dir, 0, &err), SY_EBUSY);
    cr_expect(strstr(err.text, "was taken over by process 7 on host some-other-host") != NULL, "%s",
              err.text);
    cr_expect_eq(syi_run_dir_status(&dir, "failed", &again), SY_EBUSY);
    check_file("status", "running");
    syi_run_dir_close(&dir);
    cr_expect_eq(access(lock, F_OK), 0, "the lock of the other run was removed");
}

/* Its successor ended and took its lock along, so that there is none. */
Test(run_dir, an_owner_whose_successor_has_ended_writes_no_more)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    char file[160];
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    cr_assert_eq(syi_run_dir_status(&dir, "running", NULL), SY_OK);
    snprintf(file, sizeof file, "%s/status", path);
    cr_assert_eq(syi_file_write(file, "done\n", 5, NULL), SY_OK);
    cr_assert_eq(unlink(lock), 0);
    cr_expect_eq(syi_run_dir_beat(&dir, 0, &err), SY_EBUSY);
    cr_expect(strstr(err.text, "was taken over by a process that has ended since") != NULL, "%s", err.text);
    cr_expect_eq(syi_run_dir_status(&dir, "stopped", NULL), SY_EBUSY);
    check_file("status", "done");
    syi_run_dir_close(&dir);
    cr_expect_neq(access(lock, F_OK), 0, "a run that was taken over makes a lock");
}

/* Nobody ended the run: it has no status yet, or is running. */
Test(run_dir, a_lock_that_somebody_removed_is_made_again)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    char words[64];
    snprintf(words, sizeof words, "in use by process %d on this host", (int)getpid());
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    for (int look = 0; look < 2; look++) {
        cr_assert_eq(unlink(lock), 0);
        cr_expect_eq(syi_run_dir_beat(&dir, 0, &err), SY_OK, "%s", err.text);
        check_refused(words);
        cr_assert_eq(syi_run_dir_status(&dir, "running", NULL), SY_OK);
    }
    char moved[128];
    snprintf(moved, sizeof moved, "%s/moved", folder);
    cr_assert_eq(rename(path, moved), 0);
    cr_expect_eq(syi_run_dir_beat(&dir, 0, &err), SY_OK, "%s", err.text);
    cr_expect_neq(access(path, F_OK), 0, "a folder is made where the run was");
    syi_run_dir_close(&dir);
}

Test(run_dir, a_start_waits_for_an_owner_that_ends)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    struct syi_lock_options patient = {.wait = 60}, short_of_time = {.wait = 0.6};
    int ready[2];
    char byte;
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (syi_run_dir_open(path, NULL, &dir, NULL) || write(ready[1], "x", 1) != 1) _exit(1);
        sleep(2);
        syi_run_dir_close(&dir);
        _exit(0);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    double begin = syi_seconds();
    cr_expect_eq(syi_run_dir_open(path, &short_of_time, &dir, &err), SY_EBUSY);
    cr_expect(syi_seconds() - begin >= 0.6, "it did not wait");
    cr_expect(strstr(err.text, "on this host") != NULL, "%s", err.text);
    err = (struct sy_error){0};
    cr_assert_eq(syi_run_dir_open(path, &patient, &dir, &err), SY_OK, "%s", err.text);
    syi_run_dir_close(&dir);
    waitpid(child, NULL, 0);
}

Test(run_dir, a_lock_without_owner)
{
    static const char *const odd[] = {"garbage\n", "host -3 5\n"};
    for (size_t i = 0; i < SYI_COUNT(odd); i++) {
        put_lock(odd[i]);
        check_refused("names no owner");
        take_at_a_word("took over a lock without an owner, as --takeover asks");
    }
}

/* Of many processes that ask for the lock that is there, one gets it. */
static void check_one_wins(void)
{
    enum { CHILDREN = 8 };
    int won = 0, go[2], done[2], end[2];
    cr_assert(pipe(go) == 0 && pipe(done) == 0 && pipe(end) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        if (fork()) continue;
        struct syi_run_dir dir;
        char byte;
        if (read(go[0], &byte, 1) != 1) _exit(2);
        char result = syi_run_dir_open(path, NULL, &dir, NULL) == SY_OK ? 'y' : 'n';
        if (write(done[1], &result, 1) != 1) _exit(2);
        if (read(end[0], &byte, 1) != 1) _exit(2); /* stays alive until all have tried */
        _exit(0);
    }
    cr_assert_eq(write(go[1], "12345678", CHILDREN), CHILDREN);
    for (int i = 0; i < CHILDREN; i++) {
        char result;
        cr_assert_eq(read(done[0], &result, 1), 1);
        won += result == 'y';
    }
    cr_assert_eq(write(end[1], "12345678", CHILDREN), CHILDREN);
    while (wait(NULL) > 0) continue;
    cr_expect_eq(won, 1, "%d processes hold the lock", won);
}

Test(run_dir, of_many_that_follow_a_dead_one_one_wins)
{
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, NULL, 0);
    put_owner(this_host(), dead, 5);
    check_one_wins();
}

/* Killed between making the file and writing into it. */
Test(run_dir, an_empty_lock_is_followed)
{
    put_lock("");
    check_taken("took over a lock without an owner");
    put_lock("");
    check_one_wins();
}

Test(run_dir, a_lock_taken_by_others_meanwhile_stays)
{
    struct syi_run_dir dir;
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    cr_assert_eq(unlink(lock), 0);
    put_owner("some-other-host", 1, 1);
    syi_run_dir_close(&dir);
    cr_expect_eq(access(lock, F_OK), 0);
}

/* ---- what cannot be written ---- */

Test(run_dir, read_only)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    cr_assert_eq(syi_make_folders(path, NULL), SY_OK);
    cr_assert_eq(chmod(path, 0555), 0);
    cr_assert_eq(chmod(folder, 0755), 0);
    if (geteuid() == 0) cr_assert_eq(seteuid(65534), 0); /* root may write anywhere */
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, &err), SY_EIO);
    if (getuid() == 0) cr_assert_eq(seteuid(0), 0);
    cr_expect(strstr(err.text, path) && strstr(err.text, "Permission denied"), "%s", err.text);
    cr_expect_eq(dir.locked, 0);
}

Test(run_dir, a_file_in_the_way)
{
    struct syi_run_dir dir;
    struct sy_error err = {0};
    snprintf(lock, sizeof lock, "%s/a", folder);
    cr_assert_eq(syi_file_write(lock, "x", 1, NULL), SY_OK);
    cr_assert_neq(syi_run_dir_open(path, NULL, &dir, &err), SY_OK);
    cr_expect(strstr(err.text, lock) != NULL, "%s", err.text);
    cr_assert_eq(syi_run_dir_open("", NULL, &dir, NULL), SY_EINVAL);
}

Test(run_dir, nothing_is_written_without_the_lock)
{
    struct syi_run_dir dir = {.locked = 0};
    snprintf(dir.path, sizeof dir.path, "%s", folder);
    cr_expect_eq(syi_run_dir_status(&dir, "done", NULL), SY_EINTERNAL);
    syi_run_dir_log(&dir, "goes nowhere");
}

/* Those who only watch see who holds the lock and how a run ended, and change nothing. */
Test(run_dir, a_look_from_outside)
{
    struct syi_lock_state lock_state;
    struct syi_run_state state;
    char host[256], text[300];
    cr_assert_eq(syi_make_folders(path, NULL), SY_OK);
    syi_run_lock_look(path, &lock_state);
    cr_expect(!lock_state.held);
    syi_run_state_read(path, &state);
    cr_expect(!state.live && strstr(state.text, "not known"));

    struct syi_run_dir dir = {0};
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    syi_run_lock_look(path, &lock_state);
    cr_expect(lock_state.held && lock_state.here && lock_state.alive && lock_state.pid == getpid());
    syi_run_state_read(path, &state);
    cr_expect(state.live && strstr(state.text, "running"));
    cr_assert_eq(syi_run_dir_status(&dir, "failed", NULL), SY_OK);
    syi_run_dir_close(&dir);
    syi_run_state_read(path, &state);
    cr_expect(!state.live);
    cr_expect_str_eq(state.text, "failed");

    cr_assert_eq(gethostname(host, sizeof host), 0);
    snprintf(text, sizeof text, "%.200s 999999999 1 -\n", host);
    put_lock(text);
    syi_run_state_read(path, &state);
    cr_expect(!state.live && strstr(state.text, "killed: process 999999999"), "%s", state.text);
    put_lock("elsewhere 12 1 -\n");
    syi_run_state_read(path, &state);
    cr_expect(state.live && strstr(state.text, "running, process 12 on elsewhere"), "%s", state.text);
    struct timespec old[2] = {{.tv_sec = time(NULL) - 500}, {.tv_sec = time(NULL) - 500}};
    cr_assert_eq(utimensat(AT_FDCWD, lock, old, 0), 0);
    syi_run_state_read(path, &state);
    cr_expect(!state.live && strstr(state.text, "no sign of life for 50"), "%s", state.text);
}

/* ---- requests to move ---- */

Test(run_dir, a_request_to_move_comes_and_is_answered)
{
    struct syi_run_dir dir;
    struct syi_move asked = {.backend = "cuda", .n_sets = 1, .set = {"cuda.products=own"}}, got,
                    second = {.n_sets = 0};
    char text[64];
    cr_assert_eq(syi_run_dir_open(path, NULL, &dir, NULL), SY_OK);
    cr_expect_not(syi_move_time(path));
    cr_expect_eq(syi_move_receive(path, &got, NULL), SY_ENOENT);
    cr_assert_eq(syi_move_ask(path, &asked, NULL), SY_OK);
    cr_expect(syi_move_time(path));
    cr_expect_eq(syi_move_ask(path, &second, NULL), SY_EBUSY);
    cr_expect_eq(syi_move_withdraw(path, &second), 0, "the request of another is withdrawn");
    cr_assert_eq(syi_move_receive(path, &got, NULL), SY_OK);
    cr_expect(!memcmp(&got, &asked, sizeof got) && !syi_move_time(path));
    cr_expect_eq(syi_move_look(path, &asked, text, sizeof text), SYI_MOVE_WAITS);
    cr_expect_eq(syi_move_answer(&dir, &got, 0, "no such device", NULL), SY_OK);
    cr_expect_eq(syi_move_look(path, &asked, text, sizeof text), SYI_MOVE_REFUSED);
    cr_expect_str_eq(text, "no such device");
    cr_expect_eq(syi_move_look(path, &second, text, sizeof text), SYI_MOVE_WAITS, "the answer to another");
    cr_expect_eq(syi_move_ask(path, &second, NULL), SY_OK);
    cr_expect_eq(syi_move_withdraw(path, &second), 1);
    syi_run_dir_close(&dir);
}

Test(run_dir, a_move_sets_what_changes_no_numbers)
{
    static const struct {
        const char *backend, *set;
        int status;
    } cases[] = {{"cpu", "cpu.variant=portable", SY_OK},
                 {"", "memory.budget=1GiB", SY_OK},
                 {"", "device.index=1", SY_OK},
                 {"null", "device.index=1", SY_EINVAL},
                 {"", "cpu.threads=2", SY_EINVAL},
                 {"", "model.d_model=8", SY_EINVAL},
                 {"", "cpu.threads =2", SY_EINVAL},
                 {"", "cpu.variant=quantum", SY_EINVAL},
                 {"", "cpu", SY_EINVAL},
                 {"", "mesh.data=2", SY_EINVAL},
                 {"", "cuda.tf32=maybe", SY_EINVAL}};
    static struct syi_config config;
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_move move = {.n_sets = 1};
        struct sy_error err = {0};
        snprintf(move.backend, sizeof move.backend, "%s", cases[i].backend);
        snprintf(move.set[0], sizeof move.set[0], "%s", cases[i].set);
        cr_assert_eq(syi_config_defaults(&config, NULL), SY_OK);
        cr_expect_eq(syi_move_apply(&move, &config, &err), cases[i].status, "%s: %s", cases[i].set, err.text);
    }
}
