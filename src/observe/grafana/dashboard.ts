/**
 * The dashboard for Grafana, as `weir print grafana` prints it. Its text depends on the
 * declarations only. The compiler compares it with the types that Grafana publishes.
 */

import type {
  BigValueColorMode,
  BigValueGraphMode,
  BigValueTextMode,
  Dashboard,
  FieldColor,
  FieldConfig,
  Panel as GrafanaPanel,
  GraphFieldConfig,
  ReduceDataOptions,
  RowPanel,
  VariableModel,
  VizLegendOptions,
  VizTooltipOptions,
} from '@grafana/schema';
import { metricDeclaration } from '../metric-declarations.ts';
import { CLUSTER_ROWS } from './cluster-rows.ts';
import type { Panel, Query, Row } from './panel.ts';
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

export const ROWS: readonly Row[] = [...SERVER_ROWS, ...RLS_ROWS, ...CLUSTER_ROWS];

const UID = 'weir-metrics';
/** Of Grafana 11, which later versions upgrade. */
const SCHEMA_VERSION = 39;
const DATASOURCE = { type: 'prometheus', uid: `\${datasource}` };
/** Three panels fill the width of 24 columns. */
const PANEL_WIDTH = 8;
const PANEL_HEIGHT = 8;
const PANELS_IN_LINE = 3;
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

const TEXT: {
  colorMode: Json<BigValueColorMode>;
  graphMode: Json<BigValueGraphMode>;
  textMode: Json<BigValueTextMode>;
  reduceOptions: Json<ReduceDataOptions>;
} = {
  colorMode: 'none',
  graphMode: 'none',
  textMode: 'value_and_name',
  reduceOptions: { calcs: ['lastNotNull'] },
};

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
    annotations: { list: [] },
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
    const own = panels.map((panel, index) => toGrafana(panel, id + 1 + index, top, index));
    const row: Json<RowPanel> = {
      id,
      type: 'row',
      title,
      collapsed: isCollapsed,
      gridPos: { x: 0, y, w: PANEL_WIDTH * PANELS_IN_LINE, h: 1 },
      panels: isCollapsed ? own : [],
    };
    y = top;
    if (isCollapsed) return [row];
    y += Math.ceil(panels.length / PANELS_IN_LINE) * PANEL_HEIGHT;
    return [row, ...own];
  });
}

/** @param index of the panel in its row */
function toGrafana(panel: Panel, id: number, top: number, index: number): Json<GrafanaPanel> {
  const { title, queries, isText = false } = panel;
  return {
    id,
    type: isText ? 'stat' : 'timeseries',
    title,
    description: descriptionOf(panel),
    datasource: DATASOURCE,
    gridPos: {
      x: (index % PANELS_IN_LINE) * PANEL_WIDTH,
      y: top + Math.floor(index / PANELS_IN_LINE) * PANEL_HEIGHT,
      w: PANEL_WIDTH,
      h: PANEL_HEIGHT,
    },
    fieldConfig: { defaults: fieldConfigOf(panel), overrides: [] },
    options: isText ? { ...TEXT } : { legend: LEGEND, tooltip: TOOLTIP },
    targets: queries.map((query, index) => toTarget(query, index)),
  };
}

function fieldConfigOf(panel: Panel): Json<FieldConfig> {
  const { max, isSigned = false, isText = false } = panel;
  const unit = unitOf(panel);
  // The palette has colours for the light and the dark theme.
  const color: Json<FieldColor> = { mode: 'palette-classic' };
  if (isText) return { unit, color };
  const range = { ...(isSigned ? {} : { min: 0 }), ...(max === undefined ? {} : { max }) };
  return { unit, color, ...range, custom: { ...LINES } };
}

function toTarget({ expr, legend }: Query, index: number): Record<string, unknown> {
  const refId = String.fromCodePoint('A'.charCodeAt(0) + index);
  return { refId, datasource: DATASOURCE, editorMode: 'code', expr, legendFormat: legend };
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
