/* Reads pictures back: where texts are, which colours are drawn. */
#include "svg.h"
#include "testing.h"

#include <lockstep/trace/picture.h>

#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 4096, COLOURS_MAX = 64 };

/* The value of an attribute of the tag, up to the quote; "" where it has none. */
struct value {
    char text[256];
};
static struct value attribute(const char *tag, const char *name)
{
    struct value value = {""};
    char mark[32];
    snprintf(mark, sizeof mark, " %s=\"", name);
    const char *at = strstr(tag, mark);
    if (at && at < tag + strcspn(tag, ">"))
        snprintf(value.text, sizeof value.text, "%.*s", (int)strcspn(at + strlen(mark), "\""),
                 at + strlen(mark));
    return value;
}

static double number(const char *tag, const char *name)
{
    return strtod(attribute(tag, name).text, NULL);
}

/* ---- texts ----------------------------------------------------------------------------------- */

struct box {
    double left, right, top, bottom;
    char text[256];
};

static const char *text_next(const char *at)
{
    return strstr(at, "<text class=");
}

static double size_of(const char *tag)
{
    const struct value classes = attribute(tag, "class");
    return strstr(classes.text, "ls-title") ? 17 : strstr(classes.text, "ls-n") ? 11 : 13;
}

/* An entity is a letter. */
static double width_of(const char *text)
{
    char plain[256];
    size_t used = 0;
    for (; *text; text += *text == '&' ? strcspn(text, ";") + 1 : 1)
        plain[used++] = *text;
    plain[used] = '\0';
    return ls_picture_text_width(plain);
}

/* A letter reaches from four fifths of its size above the line to a fifth below it. */
static struct box box_of(const char *tag)
{
    struct box box;
    const struct value anchor = attribute(tag, "text-anchor");
    const char *text = strchr(tag, '>') + 1;
    snprintf(box.text, sizeof box.text, "%.*s", (int)strcspn(text, "<"), text);
    double size = size_of(tag), wide = width_of(box.text) * size / 13;
    double before = !strcmp(anchor.text, "end")      ? wide
                    : !strcmp(anchor.text, "middle") ? wide / 2
                                                     : 0;
    box.left = number(tag, "x") - before;
    box.right = box.left + wide;
    box.top = number(tag, "y") - 0.8 * size;
    box.bottom = number(tag, "y") + 0.2 * size;
    return box;
}

void assert_svg_texts(const char *svg)
{
    static struct box boxes[TEXTS_MAX];
    double width = number(svg, "width"), height = number(svg, "height");
    int count = 0;
    const char *end = strstr(svg, "</svg>");
    for (const char *tag = svg; (tag = text_next(tag)) && tag < end; tag++) {
        assert_true(count < TEXTS_MAX);
        const struct box *box = &boxes[count];
        boxes[count] = box_of(tag);
        if (box->left < 0 || box->right > width || box->top < 0 || box->bottom > height)
            fail_msg("\"%s\" is cut: %g to %g of %g, %g to %g of %g", box->text, box->left,
                     box->right, width, box->top, box->bottom, height);
        for (int i = 0; i < count; i++)
            if (box->left < boxes[i].right && boxes[i].left < box->right &&
                box->top < boxes[i].bottom && boxes[i].top < box->bottom)
                fail_msg("\"%s\" overlaps \"%s\"", box->text, boxes[i].text);
        count++;
    }
}

void svg_text_place(const char *svg, const char *classes, const char *anchor, const char *text,
                    double *x, double *y)
{
    for (const char *tag = svg; (tag = text_next(tag)); tag++) {
        const char *at = strchr(tag, '>') + 1;
        if (strcmp(attribute(tag, "class").text, classes) != 0 ||
            strcmp(attribute(tag, "text-anchor").text, anchor) != 0 ||
            strncmp(at, text, strlen(text)) != 0 || at[strlen(text)] != '<')
            continue;
        *x = number(tag, "x");
        *y = number(tag, "y");
        return;
    }
    fail_msg("no text %s of class %s in\n%s", text, classes, svg);
}

/* ---- colours --------------------------------------------------------------------------------- */

struct colours {
    struct value name[COLOURS_MAX];
    int count;
};

static bool has(const struct colours *colours, const char *name)
{
    for (int i = 0; i < colours->count; i++)
        if (!strcmp(colours->name[i].text, name))
            return true;
    return false;
}

static void add(struct colours *colours, const char *name)
{
    assert_true(colours->count < COLOURS_MAX);
    if (!has(colours, name))
        snprintf(colours->name[colours->count++].text, sizeof colours->name[0].text, "%s", name);
}

/* Of the elements of that kind; fills alone. */
static void read(const char *svg, const char *kind, struct colours *legend, struct colours *drawn)
{
    for (const char *tag = svg; (tag = strstr(tag, kind)); tag++) {
        const struct value name = attribute(tag, "class");
        bool is_swatch = number(tag, "width") == 14 && number(tag, "height") == 14 &&
                         tag[strcspn(tag, ">") - 1] == '/';
        if (!strncmp(name.text, "ls-f", 4) || !strncmp(name.text, "ls-a", 4) ||
            !strcmp(name.text, "ls-idle"))
            add(is_swatch ? legend : drawn, name.text);
    }
}

void assert_svg_legend(const char *svg)
{
    struct colours legend = {.count = 0}, drawn = {.count = 0};
    read(svg, "<rect class=", &legend, &drawn);
    read(svg, "<path class=", &legend, &drawn);
    assert_true(legend.count > 0);
    for (int i = 0; i < legend.count; i++)
        if (!has(&drawn, legend.name[i].text))
            fail_msg("the legend has %s, which is not drawn", legend.name[i].text);
    for (int i = 0; i < drawn.count; i++)
        if (!has(&legend, drawn.name[i].text))
            fail_msg("%s is drawn, and not in the legend", drawn.name[i].text);
}
