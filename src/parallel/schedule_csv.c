/* Schedules as text in torchtitan's format: one line a rank, one cell an action. */
#include "parallel/schedule_private.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *name;
    struct ls_schedule *schedule;
    struct parallel_builder builder;
    int32_t line, cell;
    int64_t first_room, line_room; /* in the arrays of rows */
    int stage_max;
    int32_t micro_batch_max;
    struct ls_error *error;
};

struct piece {
    const char *text;
    size_t bytes;
};

static struct piece trim(struct piece piece)
{
    static const char *const blank = " \t\r\"";
    while (piece.bytes > 0 && strchr(blank, piece.text[0]) && piece.text[0])
        piece = (struct piece){piece.text + 1, piece.bytes - 1};
    while (piece.bytes > 0 && strchr(blank, piece.text[piece.bytes - 1]) &&
           piece.text[piece.bytes - 1])
        piece.bytes--;
    return piece;
}

/* Cuts *rest at the first separator; false at its end. */
static bool cut(struct piece *rest, char separator, struct piece *part)
{
    if (!rest->text)
        return false;
    const char *end = memchr(rest->text, separator, rest->bytes);
    size_t bytes = end ? (size_t)(end - rest->text) : rest->bytes;
    *part = (struct piece){rest->text, bytes};
    rest->bytes -= bytes + (end != NULL);
    rest->text = end ? end + 1 : NULL;
    return true;
}

static int bad_cell(struct reader *reader, struct piece cell)
{
    return ls_error_set(reader->error, LS_EDATA,
                        "%s: line %d, cell %d: \"%.*s\" is not an action; expected "
                        "<stage><F|I|W|B><micro-batch>, such as 0F0, of stages 0 to %d and "
                        "micro-batches 0 to %d, or nothing for idle time",
                        reader->name, reader->line, reader->cell,
                        (int)(cell.bytes < 60 ? cell.bytes : 60), cell.text,
                        LS_SCHEDULE_STAGES_MAX - 1, LS_SCHEDULE_MICRO_BATCHES_MAX - 1);
}

/* Digits at the front; false if there are none or too many. */
static bool take_number(struct piece *piece, int64_t max, int64_t *out)
{
    int64_t value = 0;
    size_t used = 0;
    for (; used < piece->bytes && piece->text[used] >= '0' && piece->text[used] <= '9'; used++) {
        value = value * 10 + (piece->text[used] - '0');
        if (value > max)
            return false;
    }
    *piece = (struct piece){piece->text + used, piece->bytes - used};
    *out = value;
    return used > 0;
}

static bool is_word(struct piece piece, const char *word)
{
    return piece.bytes == strlen(word) && memcmp(piece.text, word, piece.bytes) == 0;
}

/* What a lowered file says beside computation; the runtime derives it. */
static bool is_derived(struct piece word)
{
    static const char *const words[] = {
        "UNSHARD", "RESHARD",     "SEND_F",      "RECV_F",      "SEND_B",
        "RECV_B",  "WAIT_SEND_F", "WAIT_SEND_B", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(word, words[i]))
            return true;
    return false;
}

static int read_action(struct reader *reader, struct piece text)
{
    struct piece rest = text;
    int64_t stage, micro_batch = -1;
    if (!take_number(&rest, LS_SCHEDULE_STAGES_MAX - 1, &stage))
        return bad_cell(reader, text);
    struct piece word = rest;
    word.bytes = 0;
    while (word.bytes < rest.bytes &&
           ((rest.text[word.bytes] >= 'A' && rest.text[word.bytes] <= 'Z') ||
            rest.text[word.bytes] == '_'))
        word.bytes++;
    rest = (struct piece){rest.text + word.bytes, rest.bytes - word.bytes};
    bool numbered = rest.bytes > 0;
    if (numbered &&
        (!take_number(&rest, LS_SCHEDULE_MICRO_BATCHES_MAX - 1, &micro_batch) || rest.bytes > 0))
        return bad_cell(reader, text);
    if (is_derived(word))
        return LS_OK;
    static const char order[] = "FIWB"; /* enum ls_action_kind */
    const char *kind = word.bytes == 1 ? memchr(order, word.text[0], 4) : NULL;
    if (!kind || !numbered)
        return bad_cell(reader, text);
    parallel_builder_add(&reader->builder, (enum ls_action_kind)(kind - order), (int)stage,
                         micro_batch, reader->cell);
    reader->stage_max = (int)ls_max(reader->stage_max, stage);
    reader->micro_batch_max = (int32_t)ls_max(reader->micro_batch_max, micro_batch);
    return LS_OK;
}

/* One cell: nothing, an action, or "(action;action)OVERLAP_F_B". */
static int read_cell(struct reader *reader, struct piece cell)
{
    cell = trim(cell);
    if (cell.bytes == 0)
        return LS_OK;
    if (cell.text[0] != '(')
        return read_action(reader, cell);
    const char *end = memchr(cell.text, ')', cell.bytes);
    struct piece parts = {cell.text + 1, end ? (size_t)(end - cell.text) - 1 : 0}, part;
    struct piece word = end ? (struct piece){end + 1, cell.bytes - (size_t)(end + 1 - cell.text)}
                            : (struct piece){cell.text, 0};
    if (!end || !is_word(trim(word), "OVERLAP_F_B"))
        return bad_cell(reader, cell);
    int status = LS_OK;
    while (status == LS_OK && cut(&parts, ';', &part))
        status = read_action(reader, trim(part));
    return status;
}

/* A new row in first[] and line[]. */
static int add_row(struct reader *reader)
{
    struct ls_schedule *schedule = reader->schedule;
    if (schedule->ranks == LS_SCHEDULE_RANKS_MAX)
        return ls_error_set(reader->error, LS_EDATA, "%s: line %d: more than %d ranks",
                            reader->name, reader->line, LS_SCHEDULE_RANKS_MAX);
    if (!ls_list_grow(&schedule->line, schedule->ranks, &reader->line_room,
                      sizeof *schedule->line) ||
        !ls_list_grow(&schedule->first, schedule->ranks + 1, &reader->first_room,
                      sizeof *schedule->first))
        return ls_error_set(reader->error, LS_ENOMEM, "%s: no memory for its rows", reader->name);
    if (schedule->ranks == 0)
        schedule->first[0] = 0;
    schedule->line[schedule->ranks] = reader->line;
    schedule->ranks++;
    schedule->first[schedule->ranks] = schedule->first[schedule->ranks - 1];
    return LS_OK;
}

static int read_rows(struct reader *reader, struct piece text)
{
    static const char mark[] = "\xef\xbb\xbf"; /* spreadsheets put it before a file */
    const size_t marked = sizeof mark - 1;
    struct piece line, cell;
    int status = LS_OK;
    if (text.bytes >= marked && memcmp(text.text, mark, marked) == 0)
        text = (struct piece){text.text + marked, text.bytes - marked};
    while (status == LS_OK && cut(&text, '\n', &line)) {
        reader->line++;
        reader->cell = 0;
        if (trim(line).bytes == 0)
            continue; /* such as what follows the last line's end */
        status = add_row(reader);
        while (status == LS_OK && cut(&line, ',', &cell)) {
            reader->cell++;
            status = read_cell(reader, cell);
        }
    }
    if (status == LS_OK && reader->builder.failed)
        status =
            ls_error_set(reader->error, LS_ENOMEM, "%s: no memory for its actions", reader->name);
    return status;
}

/* ---- the shape ------------------------------------------------------------------------------ */

static int check_shape(const struct reader *reader, int ranks, int chunks, int64_t micro_batches)
{
    const struct ls_schedule *schedule = reader->schedule;
    int stages = reader->stage_max + 1;
    if (schedule->ranks == 0 || reader->stage_max < 0)
        return ls_error_set(reader->error, LS_EDATA, "%s: no line with an action in it",
                            reader->name);
    if (ranks && ranks != schedule->ranks)
        return ls_error_set(
            reader->error, LS_ELAYOUT,
            "%s has %d lines, one for each pipeline rank, but the layout has %d ranks",
            reader->name, schedule->ranks, ranks);
    if (stages % schedule->ranks)
        return ls_error_set(reader->error, LS_ELAYOUT,
                            "%s: %d stages (the highest is %d) cannot be shared evenly by %d ranks "
                            "(lines)",
                            reader->name, stages, reader->stage_max, schedule->ranks);
    if (stages / schedule->ranks > LS_SCHEDULE_CHUNKS_MAX)
        return ls_error_set(reader->error, LS_ELAYOUT,
                            "%s: %d stages on %d ranks (lines) are more than %d chunks a rank",
                            reader->name, stages, schedule->ranks, LS_SCHEDULE_CHUNKS_MAX);
    if (chunks && chunks != stages / schedule->ranks)
        return ls_error_set(reader->error, LS_ELAYOUT,
                            "%s has %d stages on %d ranks: that is chunks = %d, but the layout has "
                            "%d",
                            reader->name, stages, schedule->ranks, stages / schedule->ranks,
                            chunks);
    if (micro_batches && micro_batches != reader->micro_batch_max + 1)
        return ls_error_set(reader->error, LS_ELAYOUT,
                            "%s has %d micro-batches, but the layout has %lld", reader->name,
                            reader->micro_batch_max + 1, (long long)micro_batches);
    return LS_OK;
}

/* A stage lives where it is first computed. */
static int place_stages(const struct reader *reader, struct ls_schedule *schedule)
{
    for (int s = 0; s < schedule->stages; s++)
        schedule->stage_rank[s] = -1;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        for (int64_t i = schedule->first[rank]; i < schedule->first[rank + 1]; i++) {
            int32_t *home = &schedule->stage_rank[schedule->actions[i].stage];
            if (*home < 0)
                *home = rank;
            if (*home != rank)
                return ls_error_set(reader->error, LS_ELAYOUT,
                                    "%s: line %d, cell %d: %s, but stage %d is computed in line "
                                    "%d: a stage belongs to one rank",
                                    reader->name, schedule->line[rank], schedule->cell[i],
                                    ls_action_text(schedule->actions[i]).text,
                                    schedule->actions[i].stage, schedule->line[*home]);
        }
    }
    for (int s = 0; s < schedule->stages; s++)
        if (schedule->stage_rank[s] < 0)
            return ls_error_set(reader->error, LS_ELAYOUT,
                                "%s: no line computes stage %d of 0 to %d", reader->name, s,
                                schedule->stages - 1);
    if (!parallel_schedule_map(schedule))
        return ls_error_set(reader->error, LS_ELAYOUT,
                            "%s: %d stages on %d ranks: each line must have %d, and one has more",
                            reader->name, schedule->stages, schedule->ranks, schedule->chunks);
    return LS_OK;
}

static enum ls_stage_placement placement_of(const struct ls_schedule *schedule)
{
    int p = schedule->ranks;
    bool loop = true, v = schedule->chunks == 2;
    for (int s = 0; s < schedule->stages; s++) {
        loop = loop && schedule->stage_rank[s] == ls_stage_rank(LS_PLACEMENT_LOOP, p, s);
        v = v && schedule->stage_rank[s] == ls_stage_rank(LS_PLACEMENT_V, p, s);
    }
    return loop ? LS_PLACEMENT_LOOP : v ? LS_PLACEMENT_V : LS_PLACEMENT_FILE;
}

/* Moves the rows into a schedule of the shape they show. */
static int assemble(struct reader *reader)
{
    struct ls_schedule *rows = reader->schedule, whole;
    int status =
        parallel_schedule_init(&whole, rows->ranks, (reader->stage_max + 1) / rows->ranks,
                               reader->micro_batch_max + 1, LS_PLACEMENT_FILE, reader->error);
    if (status)
        return status;
    free(whole.first);
    whole.first = rows->first;
    whole.actions = rows->actions;
    whole.cell = rows->cell;
    whole.line = rows->line;
    *rows = whole;
    status = place_stages(reader, rows);
    if (status == LS_OK)
        rows->placement = placement_of(rows);
    return status;
}

int ls_schedule_parse(struct ls_schedule *schedule, const char *name, const char *text,
                      size_t bytes, int ranks, int chunks, int64_t micro_batches,
                      struct ls_error *error)
{
    *schedule = (struct ls_schedule){0};
    struct reader reader = {.name = name,
                            .schedule = schedule,
                            .builder = {.schedule = schedule, .with_cells = true},
                            .stage_max = -1,
                            .micro_batch_max = -1,
                            .error = error};
    int status = read_rows(&reader, (struct piece){text, bytes});
    if (status == LS_OK)
        status = check_shape(&reader, ranks, chunks, micro_batches);
    if (status == LS_OK)
        status = assemble(&reader);
    if (status)
        ls_schedule_release(schedule);
    return status;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* 1,024 pipeline ranks with 2,048 micro-batches in three parts each take 60 MiB. */
enum { FILE_BYTES_MAX = 64 << 20 };

int ls_schedule_read(struct ls_schedule *schedule, const char *path, int ranks, int chunks,
                     int64_t micro_batches, struct ls_error *error)
{
    *schedule = (struct ls_schedule){0};
    char *text;
    size_t bytes;
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_EDATA, &text, &bytes, error);
    if (status == LS_OK)
        status =
            ls_schedule_parse(schedule, path, text, bytes, ranks, chunks, micro_batches, error);
    free(text);
    return status;
}

int ls_schedule_write(const struct ls_schedule *schedule, FILE *file, struct ls_error *error)
{
    for (int rank = 0; rank < schedule->ranks; rank++) {
        int64_t count;
        const struct ls_action *actions = ls_schedule_actions(schedule, rank, &count);
        for (int64_t i = 0; i < count; i++)
            fprintf(file, "%s%s", i ? "," : "", ls_action_text(actions[i]).text);
        fputc('\n', file);
    }
    return fflush(file) || ferror(file) ? ls_error_errno(error, errno, "cannot write the schedule")
                                        : LS_OK;
}
