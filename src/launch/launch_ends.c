/* How ranks ended, as they hand it out: a line of JSON on stderr, which the launcher takes. */
#include "launch/launch_private.h"

#include <lockstep/base/json.h>
#include <lockstep/comm.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "{\"lockstep_end\":"

static const char *const causes[] = {
    [LS_CAUSE_OTHER] = "other",       [LS_CAUSE_LATE] = "late",
    [LS_CAUSE_LATE_ONE] = "late_one", [LS_CAUSE_KEPT] = "kept",
    [LS_CAUSE_FAULTY] = "faulty",     [LS_CAUSE_READ_ONLY] = "read_only",
    [LS_CAUSE_GIVEN_UP] = "given_up",
};

void ls_launch_end_tell(int status, bool lives, const struct ls_error *error)
{
    static bool told;
    if (told || !getenv(LAUNCH_VARIABLE))
        return;
    told = true;
    json_t *end = json_pack("{s:i, s:b, s:i, s:s, s:s, s:s}", "lockstep_end", ls_exit_code(status),
                            "lives", (int)lives, "rank", ls_mpi_launched_rank(), "cause",
                            causes[status ? error->cause : 0], "host", status ? error->host : "",
                            "text", status ? error->text : "");
    char *line = end ? json_dumps(end, JSON_COMPACT) : NULL;
    /* One write: lines of several ranks do not mix. */
    fflush(stderr);
    if (line)
        dprintf(STDERR_FILENO, "%s\n", line);
    free(line);
    json_decref(end);
}

static enum ls_error_cause cause_of(const json_t *end)
{
    const char *name = json_string_value(json_object_get(end, "cause"));
    int cause = sizeof causes / sizeof *causes - 1;
    while (cause > LS_CAUSE_OTHER && (!name || strcmp(name, causes[cause]) != 0))
        cause--;
    return (enum ls_error_cause)cause;
}

static void text_take(struct launch_ends *ends, enum launch_end kind, int weight, const json_t *end)
{
    const char *text = json_string_value(json_object_get(end, "text"));
    long rank = (long)json_integer_value(json_object_get(end, "rank"));
    if (!text || !*text || weight <= ends->told[kind].weight)
        return;
    ends->told[kind].weight = weight;
    if (kind == LAUNCH_GAVE_UP)
        snprintf(ends->told[kind].text, sizeof ends->told[kind].text, "rank %ld: %s", rank, text);
    else
        snprintf(ends->told[kind].text, sizeof ends->told[kind].text, "%s", text);
}

/* mpirun may put the rank before each line. */
enum launch_end launch_end_take(struct launch_ends *ends, const char *line, size_t length)
{
    const char *mark = memmem(line, length, MARK, strlen(MARK));
    json_error_t where;
    json_t *end = mark ? ls_json_load(mark, length - (size_t)(mark - line), 0, &where) : NULL;
    if (!end)
        return LAUNCH_ENDS;
    int code = (int)json_integer_value(json_object_get(end, "lockstep_end"));
    bool lives = json_is_true(json_object_get(end, "lives"));
    enum ls_error_cause cause = cause_of(end);
    enum launch_end kind = code != ls_exit_code(LS_ECOMM) ? LAUNCH_ENDED
                           : lives                        ? LAUNCH_PARTED
                                                          : LAUNCH_GAVE_UP;
    const char *host = json_string_value(json_object_get(end, "host"));
    ends->code = ends->code > 0 ? ends->code : code;
    ends->late |= cause == LS_CAUSE_LATE || cause == LS_CAUSE_LATE_ONE;
    ends->faulty |= cause == LS_CAUSE_FAULTY;
    ends->read_only |= cause == LS_CAUSE_READ_ONLY;
    if (cause == LS_CAUSE_FAULTY && host && !ends->host[0])
        snprintf(ends->host, sizeof ends->host, "%s", host);
    text_take(ends, kind, 1 + (cause == LS_CAUSE_LATE_ONE || cause == LS_CAUSE_KEPT), end);
    json_decref(end);
    return kind;
}
