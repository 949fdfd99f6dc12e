import { Counter, type Metric, type Registry } from 'prom-client';

/** Labels of a metric: name → value. */
export type Labels = Readonly<Record<string, string>>;

/** A counter that finds its series by one map lookup, since it counts every query. */
export interface QueryCounter {
  /** Increments a series. `key` identifies the labels. */
  inc(key: string, labels: () => Labels): void;
}

/**
 * Creates a counter. The library's counter hashes all labels of each query, which takes longer than
 * answering some.
 */
export function createQueryCounter(
  registry: Registry,
  name: string,
  help: string,
  labelNames: string[],
): QueryCounter {
  const pending = new Map<string, { readonly labels: Labels; count: number }>();
  new Counter({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      for (const entry of pending.values()) {
        if (entry.count > 0) this.inc(entry.labels, entry.count);
        entry.count = 0;
      }
    },
  });
  return {
    inc(key, labels) {
      const entry = pending.get(key);
      if (entry) entry.count++;
      else pending.set(key, { labels: labels(), count: 1 });
    },
  };
}

/** The corresponding histogram. */
export interface QueryHistogram {
  observe(key: string, labels: () => Labels, value: number): void;
}

interface Series {
  readonly labels: Labels;
  /** Observations per bucket; the last is the overflow bucket. */
  readonly counts: number[];
  sum: number;
}

/** Creates a histogram. `buckets`: upper bounds, ascending. */
export function createQueryHistogram(
  registry: Registry,
  name: string,
  help: string,
  buckets: readonly number[],
): QueryHistogram {
  const all = new Map<string, Series>();
  const valuesOf = ({ labels, counts, sum }: Series) => {
    let count = 0;
    const cumulative = counts.map((n, i) => {
      count += n;
      return { metricName: `${name}_bucket`, labels: { le: buckets[i] ?? '+Inf', ...labels }, value: count };
    });
    return [
      ...cumulative,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: count },
    ];
  };
  const metric = {
    name,
    help,
    type: 'histogram',
    aggregator: 'sum',
    get: async () => ({
      name,
      help,
      type: 'histogram',
      aggregator: 'sum',
      values: [...all.values()].flatMap(valuesOf),
    }),
    reset: () => all.clear(),
  };
  // A registry needs only these members; its type requires one of the library's four classes.
  registry.registerMetric(metric as unknown as Metric);
  return {
    observe(key, labels, value) {
      let series = all.get(key);
      if (!series) {
        series = { labels: labels(), counts: new Array<number>(buckets.length + 1).fill(0), sum: 0 };
        all.set(key, series);
      }
      let at = 0;
      while (at < buckets.length && value > (buckets[at] ?? 0)) at++;
      series.counts[at] = (series.counts[at] ?? 0) + 1;
      series.sum += value;
    },
  };
}
