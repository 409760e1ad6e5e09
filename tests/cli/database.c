/* SPDX-License-Identifier: Apache-2.0 */
/* What another program does to a run's database, for tests/cli/store_failure.sh:
 *   database hold PATH        keeps a read transaction open from the line "held" on until standard input ends
 *   database change PATH SQL  runs statements
 *   database fill PATH BYTES  makes the file at least so large, with a table of its own */
#include "config.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int run(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK) return 0;
    fprintf(stderr, "database: %s: %s\n", sql, sqlite3_errmsg(db));
    return 1;
}

static int hold(sqlite3 *db)
{
    char byte;

    if (run(db, "BEGIN; SELECT count(*) FROM metric")) return 1;
    puts("held");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) continue;
    return 0;
}

static int fill(sqlite3 *db, const char *path, long bytes)
{
    struct stat info;

    if (run(db, "CREATE TABLE filling (bytes BLOB)")) return 1;
    while (stat(path, &info) == 0 && info.st_size < bytes)
        if (run(db, "INSERT INTO filling VALUES (zeroblob(3000))")) return 1;
    return 0;
}

int main(int argc, char **argv)
{
    sqlite3 *db = NULL;
    int failed = 2;

    if (argc < 3 || sqlite3_open_v2(argv[2], &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        fprintf(stderr, "database: hold PATH | change PATH SQL | fill PATH BYTES: %s\n",
                db ? sqlite3_errmsg(db) : "no path");
        return 2;
    }
    sqlite3_busy_timeout(db, 10000);
    if (argc == 3 && strcmp(argv[1], "hold") == 0) failed = hold(db);
    if (argc == 4 && strcmp(argv[1], "change") == 0) failed = run(db, argv[3]);
    if (argc == 4 && strcmp(argv[1], "fill") == 0) failed = fill(db, argv[2], atol(argv[3]));
    sqlite3_close(db);
    return failed;
}
