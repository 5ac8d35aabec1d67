/* OpenMetrics 1.0, as far as gauges and counters go, and what both it and Prometheus' text format
 * 0.0.4 want. */
#ifndef TEST_SUPPORT_PROM_H
#define TEST_SUPPORT_PROM_H

/* Fails the test where text is not well-formed: TYPE first, UNIT and HELP of the same family next,
 * then its samples; names end with their unit; counters with _total, finite and not negative;
 * labels quoted and escaped; no time stamps; # EOF last. */
void assert_prom(const char *text);
/* The value of the first sample that begins so: "lockstep_loss{". Fails where there is none. */
double prom_value(const char *text, const char *begin);

#endif
