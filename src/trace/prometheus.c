/* Prometheus' exposition formats, text format 0.0.4. */
#include <lockstep/trace.h>

#include "text.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* [a-zA-Z_][a-zA-Z0-9_]*, and colons in the names of metrics. */
static bool is_name(const char *name, bool colon_allowed)
{
    if (!name || !name[0] || isdigit((unsigned char)name[0]))
        return false;
    for (const char *c = name; *c; c++)
        if (!isascii(*c) ||
            !(isalnum((unsigned char)*c) || *c == '_' || (colon_allowed && *c == ':')))
            return false;
    return true;
}

static void put_escaped(FILE *out, const char *text, bool quotes)
{
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '\\')
            fputs("\\\\", out);
        else if (*text == '"' && quotes)
            fputs("\\\"", out);
        else
            fputc(*text, out);
    }
}

static void put_value(FILE *out, double value)
{
    if (isnan(value))
        fputs(" NaN\n", out);
    else if (isinf(value))
        fputs(value > 0 ? " +Inf\n" : " -Inf\n", out);
    else {
        char buffer[40];
        struct trace_text text = {.data = buffer, .size = sizeof buffer};
        trace_text_number(&text, value, 17);
        fprintf(out, " %.*s\n", (int)text.used, buffer);
    }
}

static int check_metric(const struct ls_metric *metrics, size_t i, struct ls_error *error)
{
    const struct ls_metric *metric = &metrics[i];
    if (!is_name(metric->name, true))
        return ls_error_set(error, LS_EINVAL,
                            "metric %zu: the name is \"%s\", expected [a-zA-Z_:][a-zA-Z0-9_:]*", i,
                            metric->name ? metric->name : "");
    if (!metric->label != !metric->label_value || (metric->label && !is_name(metric->label, false)))
        return ls_error_set(error, LS_EINVAL,
                            "metric %s: the label is \"%s\", expected [a-zA-Z_][a-zA-Z0-9_]* with "
                            "a value, or neither",
                            metric->name, metric->label ? metric->label : "");
    for (size_t j = 0; j + 1 < i; j++)
        if (!strcmp(metrics[j].name, metric->name) && strcmp(metrics[i - 1].name, metric->name))
            return ls_error_set(error, LS_EINVAL,
                                "metric %s comes twice with others between; keep one name together",
                                metric->name);
    return LS_OK;
}

int ls_prometheus_write(FILE *out, const struct ls_metric *metrics, size_t count,
                        struct ls_error *error)
{
    for (size_t i = 0; i < count; i++) {
        int code = check_metric(metrics, i, error);
        if (code)
            return code;
    }
    for (size_t i = 0; i < count; i++) {
        const struct ls_metric *metric = &metrics[i];
        if (i == 0 || strcmp(metric->name, metrics[i - 1].name)) {
            fprintf(out, "# HELP %s ", metric->name);
            put_escaped(out, metric->help, false);
            fprintf(out, "\n# TYPE %s %s\n", metric->name,
                    metric->type == LS_METRIC_COUNTER ? "counter" : "gauge");
        }
        fputs(metric->name, out);
        if (metric->label) {
            fprintf(out, "{%s=\"", metric->label);
            put_escaped(out, metric->label_value, true);
            fputs("\"}", out);
        }
        put_value(out, metric->value);
    }
    return ferror(out) ? ls_error_set(error, LS_EIO, "cannot write the metrics") : LS_OK;
}
