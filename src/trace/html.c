/* Pages: their style, and elements with escaped text. */
#include <lockstep/base/formatted.h>
#include <lockstep/trace/html.h>
#include <lockstep/trace/picture.h>

#include <string.h>

/* Text and back are those of pictures. Contrast of text is 4.5 to 1 or more in both. */
static const char style[] =
    ":root{color-scheme:light dark;--text:#1f2933;--soft:#5b6773;--back:#ffffff;--page:#f5f6f8;"
    "--rule:#dfe3e8;--link:#005a8f;--warn:#8a3200;--warn-back:#fff3e8;--code:#f0f2f5;\n"
    "--p0:#0a72c4;--p1:#0a9f6b;--p2:#c04fa0;--p3:#7d2a00;--p4:#ba8c00;--p5:#e7909f;--p6:#45288c;"
    "--p7:#55aec9;--p8:#9a2f4a;--p9:#8a6d4b;--p10:#5f9e3f;--p11:#6b7785;--p12:#b4bcc6}\n"
    "@media (prefers-color-scheme:dark){:root{--text:#e6e9ec;--soft:#a4afb9;--back:#14181d;"
    "--page:#0d1013;--rule:#2a323a;--link:#7cc4f0;--warn:#ffb27a;--warn-back:#2b1c10;"
    "--code:#1c2229;\n"
    "--p0:#4a9fe0;--p1:#25d898;--p2:#f3cfe4;--p3:#de6228;--p4:#f7d548;--p5:#c95f7d;--p6:#9a6fe8;"
    "--p7:#63d3f0;--p8:#9c2440;--p9:#c9a97f;--p10:#9ad07c;--p11:#a9b4bf;--p12:#4a545f}}\n"
    "*{box-sizing:border-box}\n"
    "html{-webkit-text-size-adjust:100%}\n"
    "body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,-apple-system,"
    "\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;font-variant-numeric:tabular-nums;"
    "overflow-wrap:anywhere}\n"
    "header,main,footer{max-width:60rem;margin:0 auto;padding:0 1.5rem}\n"
    "header{padding-top:2.75rem}\n"
    "h1{font-size:2rem;line-height:1.2;letter-spacing:-.015em;margin:0 0 .4rem;font-weight:650}\n"
    "h2{font-size:1.25rem;line-height:1.3;letter-spacing:-.005em;margin:0 0 .75rem;"
    "font-weight:620}\n"
    "h3{font-size:1rem;margin:1.75rem 0 .5rem;font-weight:620}\n"
    "p{margin:.5rem 0;max-width:46rem}\n"
    "a{color:var(--link)}\n"
    "nav{margin:1.25rem 0 0;display:flex;flex-wrap:wrap;gap:0 1.1rem;font-size:.9rem}\n"
    "nav a{text-decoration:none;padding:.2rem 0}\n"
    "nav a:hover{text-decoration:underline}\n"
    ":focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:2px}\n"
    "section{background:var(--back);border:1px solid var(--rule);border-radius:10px;"
    "padding:1.4rem 1.5rem 1.5rem;margin:1.5rem 0;min-width:0}\n"
    ".soft{color:var(--soft)}\n"
    ".note{color:var(--soft);font-size:.9rem}\n"
    ".warn{color:var(--warn);background:var(--warn-back);border-left:3px solid currentColor;"
    "padding:.5rem .8rem;border-radius:0 6px 6px 0;max-width:none}\n"
    ".verdict{font-size:1.1rem;font-weight:600}\n"
    ".mono,code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\","
    "monospace;font-size:.86em}\n"
    ".state{display:inline-block;font-size:.82rem;font-weight:600;padding:.1rem .6rem;"
    "border:1px solid currentColor;border-radius:99px;margin:0 .5rem .3rem 0;color:var(--soft)}\n"
    ".state.good{color:var(--p1)}.state.bad{color:var(--warn)}\n"
    "@media (prefers-color-scheme:light){.state.good{color:#00664a}}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:1px;"
    "margin:1.4rem 0 0;background:var(--rule);border:1px solid var(--rule);border-radius:10px;"
    "overflow:hidden}\n"
    ".card{flex:1 1 12.5rem;background:var(--back);padding:.85rem 1rem}\n"
    ".card b{display:block;font-size:1.35rem;line-height:1.25;font-weight:620;"
    "letter-spacing:-.01em}\n"
    ".card span{display:block;color:var(--soft);font-size:.82rem;line-height:1.35;"
    "margin-top:.15rem}\n"
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));"
    "gap:0 2rem}\n"
    ".pair>*{min-width:0}\n"
    ".scroll{overflow-x:auto;margin:.75rem 0}\n"
    ".tall .scroll{max-height:32rem;overflow-y:auto}\n"
    "table{border-collapse:collapse;font-size:.9rem;line-height:1.4;overflow-wrap:normal}\n"
    "caption{text-align:left;color:var(--soft);padding:0 0 .35rem;caption-side:top}\n"
    "th,td{text-align:left;padding:.32rem 1.4rem .32rem 0;vertical-align:top;"
    "border-bottom:1px solid var(--rule);font-weight:400}\n"
    "th:last-child,td:last-child{padding-right:.2rem}\n"
    "thead th{color:var(--soft);font-size:.82rem;font-weight:600;border-bottom-width:2px;"
    "vertical-align:bottom;position:sticky;top:0;background:var(--back)}\n"
    "tbody tr:last-child>*{border-bottom:0}\n"
    "td:not([class]){min-width:7.5rem}tbody th:not([class]){min-width:9rem}"
    ".tall td:not([class]){min-width:17rem}\n"
    ".w{white-space:nowrap}\n"
    ".n{text-align:right;white-space:nowrap}thead .n{white-space:normal}\n"
    ".key{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.55em}\n"
    ".legend{margin-right:1.2em;white-space:nowrap}\n"
    ".ls-cell{fill:var(--code)}.ls-box{fill:none;stroke:var(--rule)}\n"
    "figure{margin:.75rem 0}\n"
    "figure svg{display:block;margin:0}\n"
    "details{margin:.9rem 0 0}\n"
    "summary{cursor:pointer;color:var(--link);font-size:.95rem}\n"
    "pre{background:var(--code);padding:.8rem 1rem;border-radius:6px;overflow-x:auto;"
    "line-height:1.45;margin:.75rem 0}\n"
    ".narrow{display:none}.narrow svg{width:100%;max-width:30rem}.narrow.own svg{width:auto}\n"
    "footer{color:var(--soft);font-size:.85rem;padding-bottom:3rem}\n"
    "@media (max-width:46rem){.wide{display:none}.narrow{display:block}"
    "header,main,footer{padding-left:.75rem;padding-right:.75rem}header{padding-top:1.5rem}"
    "h1{font-size:1.6rem}section{padding:1.1rem .9rem;border-radius:8px;margin:1rem 0}"
    ".card{flex-basis:8rem}table{font-size:.8rem}th,td{padding-right:.55rem}"
    "thead th{font-size:.76rem}td:not([class]),tbody th:not([class]){min-width:5.5rem}"
    "td:not([class]){overflow-wrap:anywhere}"
    ".tall td:not([class]):not(:last-child){min-width:8rem}"
    ".stack,.stack tbody,.stack caption{display:block}.stack thead{display:none}"
    ".stack tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(5rem,1fr));"
    "gap:.3rem .55rem;padding:.45rem 0;border-bottom:1px solid var(--rule)}"
    ".stack tr:last-child{border-bottom:0}"
    ".stack tr>*{border:0;padding:0;text-align:left;white-space:normal;overflow-wrap:anywhere}"
    ".stack th{font-weight:600}.stack th:not(.n){grid-column:span 2;min-width:0}"
    ".stack td:not(.n){grid-column:1/-1;min-width:0}"
    ".stack tr>*::before{display:block;color:var(--soft);font-size:.72rem;font-weight:400;"
    "line-height:1.3}}\n"
    "@media print{body{background:none}section{break-inside:avoid;border:0;padding:0}"
    ".tall .scroll{max-height:none;overflow:visible}nav{display:none}}\n";

void ls_html_begin(FILE *file, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'\"/>\n<title>",
          file);
    ls_picture_xml(file, title);
    fprintf(file, "</title>\n<style>\n%s", style);
    for (int i = 0; i < LS_HTML_PARTS; i++)
        fprintf(file, ".ls-part%d{fill:var(--p%d);background:var(--p%d)}\n", i, i, i);
    fputs("@media (max-width:46rem){", file);
    for (int i = 1; i <= LS_HTML_STACK_MAX; i++)
        fprintf(file, ".stack tr>:nth-child(%d)::before{content:var(--c%d)}%s", i, i,
                i < LS_HTML_STACK_MAX ? "\n" : "}\n");
    fputs("</style>\n</head>\n<body>\n", file);
}

void ls_html_end(FILE *file)
{
    fputs("</body>\n</html>\n", file);
}

void ls_html_section_begin(FILE *file, const char *id, const char *heading)
{
    fprintf(file, "<section id=\"%s\" aria-labelledby=\"%s-h\">\n<h2 id=\"%s-h\">", id, id, id);
    ls_picture_xml(file, heading);
    fputs("</h2>\n", file);
}

void ls_html_section_end(FILE *file)
{
    fputs("</section>\n", file);
}

void ls_html_print(FILE *file, const char *element, const char *classes, const char *format, ...)
{
    char text[4096];
    LS_FORMAT(text, format);
    fprintf(file, "<%s%s%s%s>", element, classes ? " class=\"" : "", classes ? classes : "",
            classes ? "\"" : "");
    ls_picture_xml(file, text);
    fprintf(file, "</%s>\n", element);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const char *cell_class(const struct ls_html_column *column)
{
    return column->cells == LS_HTML_NUMBER ? " class=\"n\""
           : column->cells == LS_HTML_WORD ? " class=\"w\""
                                           : "";
}

/* The style shows the names of columns before the cells of a stack. */
static void table_begin(struct ls_html_table *table, bool stack, const char *caption)
{
    FILE *file = table->file;
    /* A box that scrolls is reached by the keyboard too. */
    fputs("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", file);
    ls_picture_xml(file, caption);
    fputs(stack ? "\"><table class=\"stack\" style=\"" : "\"><table", file);
    for (int i = 0; i < table->count && stack; i++) {
        fprintf(file, "--c%d:'", i + 1);
        ls_picture_xml(file, table->columns[i].name);
        fputs(i + 1 < table->count ? "';" : "'\"", file);
    }
    fputs(">\n<caption>", file);
    ls_picture_xml(file, caption);
    fputs("</caption>\n<thead><tr>", file);
    for (int i = 0; i < table->count; i++) {
        fprintf(file, "<th scope=\"col\"%s>", cell_class(&table->columns[i]));
        ls_picture_xml(file, table->columns[i].name);
        fputs("</th>", file);
    }
    fputs("</tr></thead>\n<tbody>\n", file);
}

void ls_html_table_begin(struct ls_html_table *table, FILE *file, const char *caption,
                         const struct ls_html_column *columns, int count)
{
    *table = (struct ls_html_table){.file = file, .columns = columns, .count = count};
    table_begin(table, false, caption);
}

void ls_html_stack_begin(struct ls_html_table *table, FILE *file, const char *caption,
                         const struct ls_html_column *columns, int count)
{
    LS_ASSERT(count <= LS_HTML_STACK_MAX);
    *table = (struct ls_html_table){.file = file, .columns = columns, .count = count};
    table_begin(table, true, caption);
}

static void cell_begin(struct ls_html_table *table)
{
    const char *class = cell_class(&table->columns[table->column]);
    if (table->column == 0)
        fprintf(table->file, "<tr><th scope=\"row\"%s>", class);
    else
        fprintf(table->file, "<td%s>", class);
}

static void cell_end(struct ls_html_table *table)
{
    fputs(table->column == 0 ? "</th>" : "</td>", table->file);
    table->column = (table->column + 1) % table->count;
    if (table->column == 0)
        fputs("</tr>\n", table->file);
}

void ls_html_cell(struct ls_html_table *table, const char *format, ...)
{
    char text[4096];
    LS_FORMAT(text, format);
    ls_html_cell_text(table, text);
}

void ls_html_cell_text(struct ls_html_table *table, const char *text)
{
    cell_begin(table);
    ls_picture_xml(table->file, text);
    cell_end(table);
}

void ls_html_cell_part(struct ls_html_table *table, int part, const char *text)
{
    cell_begin(table);
    fprintf(table->file, "<span class=\"key ls-part%d\"></span>", part);
    ls_picture_xml(table->file, text);
    cell_end(table);
}

void ls_html_table_end(struct ls_html_table *table)
{
    LS_ASSERT(table->column == 0);
    fputs("</tbody>\n</table></div>\n", table->file);
}

void ls_html_pre(FILE *file, const char *text)
{
    char line[1024];
    fputs("<pre tabindex=\"0\">", file);
    while (*text) {
        size_t length = strcspn(text, "\n");
        size_t shown = length < sizeof line ? length : sizeof line - 1;
        memcpy(line, text, shown);
        line[shown] = '\0';
        ls_picture_xml(file, line);
        text += shown;
        if (shown == length && *text == '\n') {
            fputc('\n', file);
            text++;
        }
    }
    fputs("</pre>\n", file);
}

void ls_html_fold_begin(FILE *file, const char *summary)
{
    fputs("<details>\n<summary>", file);
    ls_picture_xml(file, summary);
    fputs("</summary>\n", file);
}

void ls_html_fold_end(FILE *file)
{
    fputs("</details>\n", file);
}
