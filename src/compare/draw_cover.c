/* What drawn layouts have in them, and what they lack. */
#include "compare/draw.h"

#include <string.h>

void ls_draw_cover_add(struct ls_draw_cover *cover, const int values[LS_DRAW_ROWS_MAX])
{
    int rows;
    ls_draw_rows(&rows);
    cover->layouts++;
    for (int a = 0; a < rows; a++) {
        if (values[a] >= 0)
            cover->value[a][values[a]]++;
        for (int b = 0; b <= a; b++)
            cover->pair[a][b] += values[a] != 0 && values[b] != 0;
    }
}

/* Rows whose only value can be had are no demand; neither is a pair of which one is impossible. */
static bool pair_lacks(const struct ls_draw_cover *cover, int a, int b)
{
    return cover->pair[a][b] == 0 && !cover->pair_impossible[a][b] &&
           !cover->pair_impossible[a][a] && !cover->pair_impossible[b][b];
}

static bool value_lacks(const struct ls_draw_cover *cover, int row, int value)
{
    return cover->value[row][value] == 0 && !cover->value_impossible[row][value];
}

static bool row_offered(const struct ls_draw *draw, int row)
{
    const struct ls_draw_row *rows = ls_draw_rows(&(int){0});
    for (int v = 1; rows[row].values[v]; v++)
        if (draw_offers(draw, row, v))
            return true;
    return false;
}

bool ls_draw_cover_ask(const struct ls_draw_cover *cover, struct ls_draw *draw)
{
    int count;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    /* Each row alone, then its values, then pairs: what a row cannot have, no pair of it can. */
    for (int row = 0; row < count; row++)
        if (row_offered(draw, row) && pair_lacks(cover, row, row)) {
            draw->asks[0] = (struct ls_draw_ask){row, 0};
            draw->ask_count = 1;
            return true;
        }
    for (int row = 0; row < count; row++)
        for (int v = 1; rows[row].values[v]; v++)
            if (draw_offers(draw, row, v) && value_lacks(cover, row, v)) {
                draw->asks[0] = (struct ls_draw_ask){row, v};
                draw->ask_count = 1;
                return true;
            }
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++)
            if (row_offered(draw, a) && row_offered(draw, b) && pair_lacks(cover, a, b)) {
                draw->asks[0] = (struct ls_draw_ask){a, 0};
                draw->asks[1] = (struct ls_draw_ask){b, 0};
                draw->ask_count = 2;
                return true;
            }
    draw->ask_count = 0;
    return false;
}

void ls_draw_cover_impossible(struct ls_draw_cover *cover, const struct ls_draw *draw)
{
    const struct ls_draw_ask *a = &draw->asks[0], *b = &draw->asks[draw->ask_count - 1];
    if (draw->ask_count == 1 && a->value > 0)
        cover->value_impossible[a->row][a->value] = true;
    else
        cover->pair_impossible[ls_max(a->row, b->row)][ls_min(a->row, b->row)] = true;
}

/* Of each row, in lines of 100 columns behind what stands there. */
static void rows_print(const struct ls_draw_cover *cover, int column, FILE *file)
{
    int count;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    for (int a = 0; a < count; a++) {
        char text[64];
        const char *dot = strchr(rows[a].name, '.');
        int used = snprintf(text, sizeof text, "%s %d%s", dot ? dot + 1 : rows[a].name,
                            cover->pair[a][a], a + 1 < count ? "," : "");
        column += used + 1;
        fprintf(file, column > 100 ? "\n  %s" : " %s", text);
        column = column > 100 ? used + 2 : column;
    }
    fputc('\n', file);
}

void ls_draw_cover_line(const struct ls_draw_cover *cover, bool each, FILE *file)
{
    int count, met = 0;
    ls_draw_rows(&count);
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++)
            met += cover->pair[a][b] > 0;
    if (each)
        rows_print(cover, fprintf(file, "settings covered, with the number of layouts:"), file);
    fprintf(file, "%d of %d pairs of settings occurred together\n", met, count * (count - 1) / 2);
}
