/**
 * The only declaration of what weir counts of each namespace. The rows of the stats blocks, the
 * metrics and their panels in Grafana derive from it. A figure is a count that the analytics keep:
 * the columns of their database, the fields of the API, and the columns of `weir stats` and of the
 * dashboard derive from it too. A count has one more place, which counts it.
 *
 * This file imports nothing, because browsers load it with the dashboard.
 */

/** How the analytics keep and show a count. */
interface FigureDeclaration {
  /** The column of the analytics database, and the version of its schema that has added it. */
  column: string;
  since: number;
  /** What the field of the API is, which has the name of the count. */
  description: string;
  /** The heading of the column of `weir stats`. */
  heading: string;
  /** The heading of the column of the dashboard; undefined if its tables leave the figure out. */
  label?: string;
}

interface CountDeclaration {
  name: string;
  /** A counter of NAMESPACE_METRICS, and the value of its label `outcome` if it has one. */
  metric: keyof typeof NAMESPACE_METRICS;
  outcome?: string;
  figure?: FigureDeclaration;
}

/** The counters of the metrics, all with the label `namespace`. */
export const NAMESPACE_METRICS = {
  weir_decisions_total: {
    group: 'Decisions',
    unit: 'checks',
    help: 'Decisions, by namespace and outcome.',
    panel: 'Checks',
  },
  weir_tokens_total: {
    group: 'Decisions',
    unit: 'tokens',
    help: 'Costs of the checks decided, by namespace and outcome.',
    panel: 'Tokens',
  },
  weir_lease_requests_total: {
    group: 'Reservations and leases',
    unit: 'requests',
    help: 'Requests for a lease, by namespace and outcome.',
    panel: 'Requests for leases',
  },
  weir_shadow_denials_total: {
    group: 'Gateways',
    unit: 'checks',
    help: 'Denied gateway checks whose request passed because the policy has shadow.',
    panel: 'Denials of policies with shadow',
  },
  weir_unidentified_checks_total: {
    group: 'Gateways',
    unit: 'checks',
    help: 'Gateway checks without a part of the identity that the policy names.',
    panel: 'Checks without an identity',
  },
  weir_skipped_checks_total: {
    group: 'Gateways',
    unit: 'checks',
    help: 'Gateway checks of requests that the policy allows without a decision, by its skip.',
    panel: 'Requests that policies skip',
  },
} as const;

export type NamespaceMetric = keyof typeof NAMESPACE_METRICS;

/** In the order of the rows in the stats blocks, of the fields and of the columns. */
export const NAMESPACE_COUNTS = [
  {
    name: 'allowed',
    metric: 'weir_decisions_total',
    outcome: 'allowed',
    figure: {
      column: 'allowed',
      since: 1,
      description: 'Number of allowed checks.',
      heading: 'ALLOWED',
      label: 'Allowed',
    },
  },
  {
    name: 'denied',
    metric: 'weir_decisions_total',
    outcome: 'denied',
    figure: {
      column: 'denied',
      since: 1,
      description: 'Number of denied checks.',
      heading: 'DENIED',
      label: 'Denied',
    },
  },
  {
    name: 'tokensAllowed',
    metric: 'weir_tokens_total',
    outcome: 'allowed',
    figure: {
      column: 'tokens_allowed',
      since: 1,
      description: 'Sum of the costs of the allowed checks.',
      heading: 'TOKENS ALLOWED',
      label: 'Tokens',
    },
  },
  {
    name: 'tokensDenied',
    metric: 'weir_tokens_total',
    outcome: 'denied',
    figure: {
      column: 'tokens_denied',
      since: 1,
      description: 'Sum of the costs of the denied checks.',
      heading: 'TOKENS DENIED',
    },
  },
  {
    name: 'leasesGranted',
    metric: 'weir_lease_requests_total',
    outcome: 'granted',
    figure: {
      column: 'leases_granted',
      since: 3,
      description: 'Number of granted leases.',
      heading: 'LEASES GRANTED',
      label: 'Leases',
    },
  },
  {
    name: 'leasesDenied',
    metric: 'weir_lease_requests_total',
    outcome: 'denied',
    figure: {
      column: 'leases_denied',
      since: 3,
      description: 'Number of denied requests for a lease.',
      heading: 'LEASES DENIED',
      label: 'Leases denied',
    },
  },
  { name: 'shadowDenials', metric: 'weir_shadow_denials_total' },
  { name: 'unidentifiedChecks', metric: 'weir_unidentified_checks_total' },
  { name: 'skippedChecks', metric: 'weir_skipped_checks_total' },
] as const satisfies readonly CountDeclaration[];

type NamespaceCount = (typeof NAMESPACE_COUNTS)[number];
export type CountName = NamespaceCount['name'];
export type FigureName = Extract<NamespaceCount, { figure: object }>['name'];
export type Figures = Record<FigureName, number>;

export interface Figure extends FigureDeclaration {
  name: FigureName;
}

export const FIGURES: readonly Figure[] = NAMESPACE_COUNTS.flatMap((count) => {
  return 'figure' in count ? [{ name: count.name, ...count.figure }] : [];
});

/** The counts that a metric sums up, each for its outcome. */
export function countsOf(metric: NamespaceMetric): { name: CountName; outcome?: string }[] {
  return NAMESPACE_COUNTS.filter((count) => count.metric === metric);
}

export function figuresOf(read: (name: FigureName) => number): Figures {
  return Object.fromEntries(FIGURES.map(({ name }) => [name, read(name)])) as Figures;
}

export const NO_FIGURES: Readonly<Figures> = figuresOf(() => 0);

export function addFigures(a: Figures, b: Figures): Figures {
  return figuresOf((name) => a[name] + b[name]);
}
