/* What drawn layouts have in them, counted and printed. */
#include "cover.h"

#include <stdio.h>

/* Neither is a demand whose rows or values are impossible. */
static bool pair_lacks(const struct ls_draw_cover *cover, int a, int b)
{
    return cover->pair[a][b] == 0 && !cover->pair_impossible[a][b] &&
           !cover->pair_impossible[a][a] && !cover->pair_impossible[b][b];
}

static bool value_lacks(const struct ls_draw_cover *cover, int row, int value)
{
    return cover->value[row][value] == 0 && !cover->value_impossible[row][value];
}

int cover_missing(const struct ls_draw_cover *cover, bool pairs)
{
    int count, missing = 0;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    for (int a = 0; a < count; a++) {
        for (int v = 0; rows[a].values[v]; v++)
            missing += value_lacks(cover, a, v) && !cover->pair_impossible[a][a];
        for (int b = pairs ? 0 : a; b <= a; b++)
            missing += pair_lacks(cover, a, b);
    }
    return missing;
}

static char letter(int row)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv";
    _Static_assert(sizeof letters - 1 >= LS_DRAW_ROWS_MAX, "a letter for each row");
    return letters[row];
}

static void values_print(const struct ls_draw_cover *cover, const struct ls_draw_row *rows, int a)
{
    printf("  %c  %-31s", letter(a), rows[a].name);
    for (int v = 0; rows[a].values[v]; v++) {
        const char *text = *rows[a].values[v] ? rows[a].values[v] : "none";
        const char *end = rows[a].values[v + 1] ? "," : "";
        if (cover->value[a][v] || value_lacks(cover, a, v))
            printf(" %s %d%s", text, cover->value[a][v], end);
        else
            printf(" %s -%s", text, end);
    }
    putchar('\n');
}

void cover_print(const struct ls_draw_cover *cover)
{
    int count;
    const struct ls_draw_row *rows = ls_draw_rows(&count);
    printf("%d layouts drawn; how many had each value (-: none was found)\n", cover->layouts);
    for (int a = 0; a < count; a++)
        values_print(cover, rows, a);
    printf(
        "how many had both keys of a pair at another value than the first (-: none found)\n    ");
    for (int a = 0; a < count; a++)
        printf(" %3c", letter(a));
    putchar('\n');
    for (int a = 0; a < count; a++) {
        printf("  %c ", letter(a));
        for (int b = 0; b <= a; b++)
            if (cover->pair[a][b] || pair_lacks(cover, a, b))
                printf(" %3d", cover->pair[a][b]);
            else
                printf("   -");
        putchar('\n');
    }
}
