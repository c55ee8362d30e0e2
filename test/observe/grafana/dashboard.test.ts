/** The dashboard agrees with the declarations of the metrics, and Grafana can lay it out. */

import { describe, expect, test } from 'vitest';
import { NEARLY_FULL_SHARE } from '../../../src/core/constants.ts';
import { BOUNDS } from '../../../src/observe/bounds.ts';
import { grafanaDashboard, ROWS, unitOf } from '../../../src/observe/grafana/dashboard.ts';
import {
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../../src/observe/metric-declarations.ts';
import { SERVER_ALERTS } from '../../../src/observe/rules/server-alerts.ts';
import { faultsOf, labelsOf, metricsOf, referencesOf } from '../../support/promql.ts';

const NAMES = Object.keys(METRICS) as MetricName[];
const PANELS = ROWS.flatMap(({ panels }) => panels);
const QUERIES = PANELS.flatMap(({ title, queries }) => {
  return queries.map((query) => ({ title, ...query }));
});

interface PrintedPanel {
  id: number;
  type: string;
  title: string;
  description?: string;
  collapsed?: boolean;
  panels?: PrintedPanel[];
  gridPos: { x: number; y: number; w: number; h: number };
  datasource?: object;
  targets?: { refId: string; expr: string; datasource: object }[];
  fieldConfig?: { defaults: { thresholds?: { steps: { value: number | null }[] } } };
}

/** The metrics that no panel shows, with the reason. */
const METRICS_WITHOUT_PANEL: Partial<Record<MetricName, string>> = {
  weir_table_slots: 'It never changes, and is twice weir_counters_capacity.',
};

const DASHBOARD = JSON.parse(grafanaDashboard()) as {
  id: null;
  uid: string;
  panels: PrintedPanel[];
  annotations: {
    list: {
      name: string;
      target: { expr: string };
      datasource: { uid: string };
      useValueForTime: boolean;
    }[];
  };
  templating: { list: { name: string; query: string | { query: string } }[] };
};
const PRINTED = DASHBOARD.panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);

/** The labels that the result of an expression has, as far as its legend may show them. */
function shownLabels(expr: string): string[] {
  const [, list] = /(?:sum|count|max) by \(([^)]*)\)/.exec(expr) ?? [];
  if (list !== undefined) return list === '' ? [] : list.split(', ');
  return labelsOf(referencesOf(expr).selectors[0].series) ?? [];
}

describe('each metric', () => {
  test('has exactly one panel, or a reason to have none', () => {
    const homes = (name: MetricName) => {
      const panels = PANELS.filter(({ metrics }) => metrics.includes(name));
      return panels.length + (Object.hasOwn(METRICS_WITHOUT_PANEL, name) ? 1 : 0);
    };
    expect(
      NAMES.filter((name) => homes(name) === 0),
      'add each of these metrics to "metrics" and "queries" of a panel in src/observe/grafana,' +
        ' or to METRICS_WITHOUT_PANEL here with a reason; then run npm run docs',
    ).toEqual([]);
    expect(
      NAMES.filter((name) => homes(name) > 1),
      'name each of these metrics in "metrics" of one panel only, and not in METRICS_WITHOUT_PANEL',
    ).toEqual([]);
  });

  test('is queried by its panel, and a panel queries only metrics with a panel', () => {
    for (const { title, metrics, queries } of PANELS) {
      const queried = queries.flatMap(({ expr }) => [...metricsOf(expr)]);
      expect([title, metrics.filter((name) => !queried.includes(name))]).toEqual([title, []]);
      const homeless = queried.filter((name) => Object.hasOwn(METRICS_WITHOUT_PANEL, name));
      expect([title, homeless]).toEqual([title, []]);
      if (metrics.length > 0) {
        expect([title, [...new Set(queried)]]).toEqual([title, metrics]);
      }
    }
  });

  test('that not each server has is in a collapsed row', () => {
    for (const { panels, isCollapsed = false } of ROWS) {
      for (const name of panels.flatMap(({ metrics }) => metrics)) {
        const { engine, needsRls = false } = metricDeclaration(name);
        if (engine === 'redis' || needsRls) expect([name, isCollapsed]).toEqual([name, true]);
      }
    }
  });
});

describe('the open rows', () => {
  test('are the three questions, before all others', () => {
    const open = ROWS.filter(({ isCollapsed = false }) => !isCollapsed);
    expect(open.map(({ title }) => title)).toEqual([
      'Is it healthy?',
      'Who is denied?',
      'Why: limits, overrides, policies',
    ]);
    expect(ROWS.slice(0, 3)).toEqual(open);
  });

  test('begin with a line of numbers, coloured by the bounds of the alerts', () => {
    const [numbers] = DASHBOARD.panels
      .filter(({ type }) => type === 'stat')
      .map(({ gridPos }) => gridPos);
    const line = DASHBOARD.panels.filter(({ gridPos }) => gridPos.y === numbers.y);
    expect(line.map(({ type }) => type)).toEqual(Array(6).fill('stat'));
    expect(line.reduce((sum, { gridPos }) => sum + gridPos.w, 0)).toBe(24);
    const steps = Object.fromEntries(
      line.map(({ title, fieldConfig }) => {
        return [title, fieldConfig?.defaults.thresholds?.steps.map(({ value }) => value)];
      }),
    );
    expect(steps).toMatchObject({
      Denied: [null, BOUNDS.deniedShare],
      '99th percentile': [null, BOUNDS.checkP99S],
      'Fullest table': [null, BOUNDS.tableShare, NEARLY_FULL_SHARE],
      'Degraded servers': [null, 1],
    });
    const alerts = Object.values(SERVER_ALERTS).map(({ expr }) => expr);
    for (const bound of Object.values(BOUNDS)) {
      expect([bound, alerts.some((expr) => expr.includes(`> ${bound}`))]).toEqual([bound, true]);
    }
  });
});

describe('an annotation', () => {
  test('names declared series with their labels, and reads only what the variables select', () => {
    const { list } = DASHBOARD.annotations;
    expect(list.map(({ name }) => name)).toEqual(['Start', 'Reload of policies']);
    for (const { target, datasource, useValueForTime } of list) {
      expect(faultsOf(target.expr)).toEqual([]);
      for (const { labels } of referencesOf(target.expr).selectors) {
        expect(labels).toEqual(['job', 'instance']);
      }
      expect([datasource.uid, useValueForTime]).toEqual([`\${datasource}`, true]);
    }
  });
});

describe('a query', () => {
  test('names declared series with their labels only', () => {
    const faults = QUERIES.flatMap(({ title, expr }) => {
      return faultsOf(expr).map((fault) => `${title}: ${fault}`);
    });
    expect(faults).toEqual([]);
  });

  test('reads only what the variables select', () => {
    for (const { title, expr } of QUERIES) {
      const { selectors } = referencesOf(expr);
      // A number for each namespace cannot be compared with one for all of them.
      const selected = ['job', 'instance', 'namespace'].filter((label) => {
        return selectors.every(({ series }) => labelsOf(series)?.includes(label));
      });
      for (const { series, labels } of selectors) {
        const others = ['namespace'].filter((label) => !selected.includes(label));
        expect([title, labels.filter((label) => others.includes(label))]).toEqual([title, []]);
        expect([title, series, labels]).toEqual([title, series, expect.arrayContaining(selected)]);
        for (const label of selected) expect(expr).toContain(`${label}=~"$${label}"`);
      }
    }
  });

  test('has a legend of labels that its result has, which tells its series apart', () => {
    for (const { title, expr, legend } of QUERIES) {
      const shown = [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label);
      const labels = shownLabels(expr).filter((label) => label !== 'job' && label !== 'le');
      expect([title, shown.toSorted()]).toEqual([title, labels.toSorted()]);
    }
    for (const { title, queries } of PANELS) {
      const legends = queries.map(({ legend }) => legend);
      expect([title, new Set(legends).size]).toEqual([title, legends.length]);
    }
  });
});

describe('a panel', () => {
  test('has one unit for all of its metrics', () => {
    for (const { title, metrics, unit } of PANELS) {
      if (unit !== undefined) continue;
      const units = metrics.map((name) => unitOf({ title, metrics: [name], queries: [] }));
      expect([title, new Set(units).size]).toEqual([title, 1]);
    }
  });

  test('is described by the help texts of its metrics', () => {
    for (const panel of PANELS) {
      const { description = '' } = PRINTED.find(({ title, type }) => {
        return title === panel.title && type !== 'row';
      })!;
      for (const name of panel.metrics) expect(description).toContain(METRICS[name].help);
      expect([panel.title, description.length > 0]).toEqual([panel.title, true]);
    }
  });

  test('has a title of its own', () => {
    const titles = PANELS.map(({ title }) => title);
    expect(titles.filter((title, i) => titles.indexOf(title) !== i)).toEqual([]);
  });
});

describe('the printed dashboard', () => {
  test('is the same each time, with ids of its own and none of a server', () => {
    expect(grafanaDashboard()).toBe(grafanaDashboard());
    expect([DASHBOARD.id, DASHBOARD.uid]).toEqual([null, expect.stringMatching(/^[\w-]{8,40}$/)]);
    const ids = PRINTED.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('has every row, panel and query of the declarations', () => {
    expect(PRINTED.filter(({ type }) => type === 'row').map(({ title }) => title)).toEqual(
      ROWS.map(({ title }) => title),
    );
    const panels = PRINTED.filter(({ type }) => type !== 'row');
    expect(panels.map(({ title }) => title)).toEqual(PANELS.map(({ title }) => title));
    const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    expect(expressions).toEqual(QUERIES.map(({ expr }) => expr));
  });

  test('asks the data source that the variable names, with one name for each query', () => {
    const datasource = { type: 'prometheus', uid: `\${datasource}` };
    for (const { title, type, datasource: own, targets = [] } of PRINTED) {
      if (type === 'row') continue;
      expect([title, own]).toEqual([title, datasource]);
      for (const target of targets) expect(target.datasource).toEqual(datasource);
      const refIds = targets.map(({ refId }) => refId);
      expect([title, refIds]).toEqual([title, [...'ABCD'].slice(0, refIds.length)]);
    }
  });

  test('has no panels that overlap or leave the grid', () => {
    const placed = (panels: readonly PrintedPanel[]) => {
      return panels.map(({ title, gridPos }) => ({ title, ...gridPos }));
    };
    // Panels of a closed row are shown when it is opened, below it.
    const closed = DASHBOARD.panels.map(({ panels = [] }) => panels);
    for (const together of [DASHBOARD.panels, ...closed].map(placed)) {
      for (const [i, a] of together.entries()) {
        expect([a.title, a.x >= 0 && a.x + a.w <= 24]).toEqual([a.title, true]);
        for (const b of together.slice(i + 1)) {
          const isApart =
            a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
          expect([a.title, b.title, isApart]).toEqual([a.title, b.title, true]);
        }
      }
    }
  });

  test('has variables that are used, and uses no other variable', () => {
    const { list } = DASHBOARD.templating;
    const names = list.map(({ name }) => name);
    const text = JSON.stringify(DASHBOARD);
    const used = [...text.matchAll(/\$\{?(\w+)/g)].map(([, name]) => name);
    const builtIn = ['__rate_interval', '__all'];
    const own = new Set(used.filter((name) => !builtIn.includes(name)));
    expect([...own].toSorted()).toEqual(names.toSorted());
    for (const { query } of list) {
      const [, series, label] =
        typeof query === 'string' ? [] : (/^label_values\((.*), (\w+)\)$/.exec(query.query) ?? []);
      if (series === undefined) continue;
      expect(faultsOf(series)).toEqual([]);
      expect(labelsOf(referencesOf(series).selectors[0].series)).toContain(label);
    }
  });
});
