/**
 * The dashboard for Grafana, as `weir print grafana` prints it. Its text depends on the
 * declarations only. The compiler compares it with the types that Grafana publishes.
 */

import type {
  AnnotationQuery,
  BigValueColorMode,
  BigValueGraphMode,
  BigValueTextMode,
  Dashboard,
  FieldColor,
  FieldConfig,
  Panel as GrafanaPanel,
  GraphFieldConfig,
  GridPos,
  ReduceDataOptions,
  RowPanel,
  Threshold,
  ThresholdsConfig,
  VariableModel,
  VizLegendOptions,
  VizTooltipOptions,
} from '@grafana/schema';
import { metricDeclaration } from '../metric-declarations.ts';
import { ANNOTATIONS, type Annotation } from './annotations.ts';
import { CLUSTER_ROWS } from './cluster-rows.ts';
import type { Bound, Panel, Query, Row } from './panel.ts';
import { QUESTION_ROWS } from './question-rows.ts';
import { RLS_ROWS } from './rls-rows.ts';
import { SERVER_ROWS } from './server-rows.ts';

/** A type of Grafana with the values of its enumerations as they are in JSON. */
type Json<T> = T extends string
  ? `${T}`
  : T extends (infer Item)[]
    ? Json<Item>[]
    : T extends object
      ? { [Key in keyof T]: Json<T[Key]> }
      : T;

export const ROWS: readonly Row[] = [
  ...QUESTION_ROWS,
  ...SERVER_ROWS,
  ...RLS_ROWS,
  ...CLUSTER_ROWS,
];

const UID = 'weir-metrics';
/** Of Grafana 11, which later versions upgrade. */
const SCHEMA_VERSION = 39;
const DATASOURCE = { type: 'prometheus', uid: `\${datasource}` };
/** The columns of a dashboard: three graphs or six numbers fill a line. */
const WIDTH = 24;
const GRAPH = { w: 8, h: 8 } as const;
const NUMBER = { w: 4, h: 4 } as const;
/** A row has fewer panels, so a new panel changes no ids in other rows. */
const IDS_OF_ROW = 100;

const LEGEND: Json<VizLegendOptions> = {
  calcs: [],
  displayMode: 'list',
  placement: 'bottom',
  showLegend: true,
};
const TOOLTIP: Json<VizTooltipOptions> = { mode: 'multi', sort: 'desc' };
const LINES: Json<GraphFieldConfig> = { drawStyle: 'line', fillOpacity: 8, lineWidth: 1 };

interface StatOptions {
  colorMode: Json<BigValueColorMode>;
  graphMode: Json<BigValueGraphMode>;
  textMode: Json<BigValueTextMode>;
  reduceOptions: Json<ReduceDataOptions>;
}
const TEXT: StatOptions = {
  colorMode: 'none',
  graphMode: 'none',
  textMode: 'value_and_name',
  reduceOptions: { calcs: ['lastNotNull'] },
};
const STAT: StatOptions = { ...TEXT, colorMode: 'value', graphMode: 'area', textMode: 'value' };

export function grafanaDashboard(): string {
  const dashboard: Json<Dashboard> = {
    uid: UID,
    title: 'weir',
    description: 'All metrics of weir. Printed by: weir print grafana',
    tags: ['weir'],
    id: null,
    schemaVersion: SCHEMA_VERSION,
    editable: true,
    // All panels show the crosshair of one.
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-1h', to: 'now' },
    timezone: 'browser',
    annotations: { list: ANNOTATIONS.map(toAnnotation) },
    links: [],
    templating: { list: variables() },
    panels: layOut(ROWS),
  };
  return `${JSON.stringify(dashboard, undefined, 2)}\n`;
}

function variables(): Json<VariableModel>[] {
  return [
    {
      name: 'datasource',
      label: 'Data source',
      type: 'datasource',
      query: 'prometheus',
      refresh: 1,
    },
    labelVariable('job', 'Job', 'weir_build_info'),
    labelVariable('instance', 'Server', 'weir_build_info{job=~"$job"}'),
    labelVariable(
      'namespace',
      'Namespace',
      'weir_decisions_total{job=~"$job", instance=~"$instance"}',
    ),
  ];
}

/** @param series whose values of the label can be chosen */
function labelVariable(name: string, label: string, series: string): Json<VariableModel> {
  return {
    name,
    label,
    type: 'query',
    datasource: DATASOURCE,
    query: { query: `label_values(${series}, ${name})`, refId: name },
    // New servers and namespaces appear when the time range changes.
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { text: ['All'], value: ['$__all'] },
  };
}

function layOut(rows: readonly Row[]): Json<GrafanaPanel | RowPanel>[] {
  let y = 0;
  return rows.flatMap(({ title, panels, isCollapsed = false }, rowIndex) => {
    const id = (rowIndex + 1) * IDS_OF_ROW;
    const top = y + 1;
    const places = placesOf(panels, top);
    const own = panels.map((panel, index) => toGrafana(panel, id + 1 + index, places[index]));
    const row: Json<RowPanel> = {
      id,
      type: 'row',
      title,
      collapsed: isCollapsed,
      gridPos: { x: 0, y, w: WIDTH, h: 1 },
      panels: isCollapsed ? own : [],
    };
    y = isCollapsed ? top : Math.max(...places.map((place) => place.y + place.h));
    return isCollapsed ? [row] : [row, ...own];
  });
}

/** Fills line after line. A line has panels of one height. */
function placesOf(panels: readonly Panel[], top: number): GridPos[] {
  const places: GridPos[] = [];
  for (const panel of panels) {
    const size = panel.stat === undefined ? GRAPH : NUMBER;
    const last = places.at(-1) ?? { x: 0, y: top, w: 0, h: size.h };
    const fits = last.x + last.w + size.w <= WIDTH && last.h === size.h;
    const next = fits ? { x: last.x + last.w, y: last.y } : { x: 0, y: last.y + last.h };
    places.push({ ...next, ...size });
  }
  return places;
}

function toGrafana(panel: Panel, id: number, gridPos: GridPos): Json<GrafanaPanel> {
  const { title, queries, isText = false, stat } = panel;
  const options = isText ? { ...TEXT } : stat && { ...STAT };
  return {
    id,
    type: options === undefined ? 'timeseries' : 'stat',
    title,
    description: descriptionOf(panel),
    datasource: DATASOURCE,
    gridPos,
    fieldConfig: { defaults: fieldConfigOf(panel), overrides: [] },
    options: options ?? { legend: LEGEND, tooltip: TOOLTIP },
    targets: queries.map((query, index) => toTarget(query, index)),
  };
}

function fieldConfigOf(panel: Panel): Json<FieldConfig> {
  const { max, isSigned = false, isText = false, stat } = panel;
  const unit = unitOf(panel);
  if (stat !== undefined) return { unit, color: { mode: 'thresholds' }, thresholds: stepsOf(stat) };
  // The palette has colours for the light and the dark theme.
  const color: Json<FieldColor> = { mode: 'palette-classic' };
  if (isText) return { unit, color };
  const range = { ...(isSigned ? {} : { min: 0 }), ...(max === undefined ? {} : { max }) };
  return { unit, color, ...range, custom: { ...LINES } };
}

function stepsOf(bounds: readonly Bound[]): Json<ThresholdsConfig> {
  const steps = bounds.map(({ from, color }) => ({ value: from, color }));
  // The value of the first step stands for -Infinity, which JSON does not have.
  const base = { value: null, color: bounds.length === 0 ? 'text' : 'green' };
  return { mode: 'absolute', steps: [base as unknown as Json<Threshold>, ...steps] };
}

function toTarget({ expr, legend }: Query, index: number): Record<string, unknown> {
  const refId = String.fromCodePoint('A'.charCodeAt(0) + index);
  return { refId, datasource: DATASOURCE, editorMode: 'code', expr, legendFormat: legend };
}

/** The values of its query are times in ms, at which Grafana draws a line. */
function toAnnotation({ name, color, expr, text }: Annotation): Json<AnnotationQuery> {
  const target = { refId: 'Anno', datasource: DATASOURCE, expr };
  const form = { useValueForTime: true, titleFormat: name, textFormat: text };
  return { name, datasource: DATASOURCE, enable: true, iconColor: color, target, ...form };
}

/** The help texts of the metrics. With several, each after the name of its metric. */
function descriptionOf({ metrics, description = '' }: Panel): string {
  const helps = metrics.map((name) => {
    const { help } = metricDeclaration(name);
    return metrics.length === 1 ? help : `${name}: ${help}`;
  });
  return [description, ...helps].filter((text) => text !== '').join('\n\n');
}

export function unitOf({ metrics: [name], unit }: Panel): string {
  if (unit !== undefined || name === undefined) return unit ?? 'none';
  const { type, unit: declared } = metricDeclaration(name);
  if (type === 'counter') return `count:${declared}/s`;
  return { seconds: 's', bytes: 'bytes', 1: 'none' }[declared] ?? `count:${declared}`;
}
