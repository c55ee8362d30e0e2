/**
 * The only declaration of the values of the Helm chart in `deploy/helm`: defaults, descriptions and
 * rules. `chart.ts` renders `values.yaml`, `values.schema.json` and the table of the documentation.
 */

import { annotations, SETTING_NAMES } from '../../src/config/schema.ts';
import { configSchema, type JsonSchema } from './config-schema.ts';

interface ChartValue {
  default: unknown;
  /** One or more sentences. */
  description: string;
  /** The accepted values, after `accepts`. */
  accepts: string;
  /** A JSON Schema of draft-07. Patterns are those of Go: without lookaheads. */
  schema: JsonSchema;
}

/** The settings that the value `config` accepts. */
export const CONFIG_SETTINGS = SETTING_NAMES.filter((name) => {
  const { isInChart = true, secret = false } = annotations(name);
  return isInChart && !secret;
});

const REPLICAS_MAX = 100;

const SECRET_NAME = {
  accepts: 'the name of a Secret',
  schema: { type: 'string', maxLength: 253, pattern: '^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$' },
};
const SECRET_KEY = {
  accepts: 'a key of the Secret',
  schema: { type: 'string', maxLength: 253, pattern: '^[A-Za-z0-9._-]+$' },
};
const QUANTITY = '^[0-9]+(\\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$';
const quantities = {
  type: 'object',
  additionalProperties: { type: ['string', 'number'], pattern: QUANTITY },
};
const peers = {
  type: 'array',
  // A rule without peers would allow all of them.
  minItems: 1,
  items: {
    type: 'object',
    properties: {
      podSelector: { type: 'object' },
      namespaceSelector: { type: 'object' },
      ipBlock: { type: 'object' },
    },
    minProperties: 1,
    additionalProperties: false,
  },
};
const PEERS = 'one or more peers of a NetworkPolicy';
const LABELS = {
  accepts: 'labels',
  schema: { type: 'object', additionalProperties: { type: 'string' } },
};
const SWITCH = { accepts: 'true or false', schema: { type: 'boolean' } };
/** Of a list with fields that Kubernetes validates. */
const listOf = (...required: string[]) => ({
  type: 'array',
  items: { type: 'object', required },
});

/** The values by their path. A path without a dot is a value at the top. */
export const CHART_VALUES: Readonly<Record<string, ChartValue>> = {
  'image.repository': {
    default: 'weir',
    description: 'The image, without its tag. No registry has it: push your own.',
    accepts: 'the name of an image',
    schema: { type: 'string', pattern: '^[a-z0-9][a-z0-9._:/-]*$' },
  },
  'image.tag': {
    default: '',
    description: 'The tag of the image. If it is empty, the version of the chart is used.',
    accepts: 'a tag',
    schema: { type: 'string', pattern: '^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$' },
  },
  'image.digest': {
    default: '',
    description: 'The digest of the image. If it is set, the tag is not used.',
    accepts: 'sha256: and 64 hexadecimal digits',
    schema: { type: 'string', pattern: '^(sha256:[0-9a-f]{64})?$' },
  },
  'image.pullSecrets': {
    default: [],
    description: 'Secrets with the credentials of the registry.',
    accepts: 'names of Secrets',
    schema: { type: 'array', items: SECRET_NAME.schema },
  },
  engine: {
    default: 'memory',
    description:
      'Where counters are. With memory there is one pod with a PersistentVolumeClaim. With redis ' +
      'several pods share a Redis or Valkey.',
    accepts: 'memory or redis',
    schema: { type: 'string', enum: ['memory', 'redis'] },
  },
  'redis.replicas': {
    default: 3,
    description: 'The number of pods. It applies to the engine redis only.',
    accepts: `an integer from 1 to ${REPLICAS_MAX}`,
    schema: { type: 'integer', minimum: 1, maximum: REPLICAS_MAX },
  },
  'redis.secretName': {
    default: 'weir-redis',
    description: 'The Secret with the value of WEIR_REDIS_URL.',
    ...SECRET_NAME,
  },
  'redis.secretKey': { default: 'url', description: 'The key of this value.', ...SECRET_KEY },
  'rootKey.secretName': {
    default: 'weir-root-key',
    description: 'The Secret with the root key. The pod starts when it exists.',
    ...SECRET_NAME,
  },
  'rootKey.secretKey': {
    default: 'root-key',
    description: 'The key of this value.',
    ...SECRET_KEY,
  },
  config: {
    default: {},
    description:
      'The content of the configuration file: settings in camelCase, and policies. Settings of ' +
      'addresses, files and secrets are not accepted here.',
    accepts: 'an object as in weir.json',
    schema: configRules(),
  },
  resources: {
    default: { requests: { cpu: '500m', memory: '512Mi' }, limits: { memory: '512Mi' } },
    description:
      'Requests and limits of the container. weir stores as many counters as fit into the memory ' +
      'limit, at least 128Mi.',
    accepts: 'resources of a container',
    schema: {
      type: 'object',
      properties: { requests: quantities, limits: quantities },
      additionalProperties: false,
    },
  },
  nodeSelector: {
    default: {},
    description: 'Labels that a node of the pods must have.',
    ...LABELS,
  },
  tolerations: {
    default: [],
    description: 'Taints of nodes that the pods tolerate.',
    accepts: 'tolerations of a pod',
    schema: listOf(),
  },
  affinity: {
    default: {},
    description: 'Rules for the nodes of the pods.',
    accepts: 'the affinity of a pod',
    schema: {
      type: 'object',
      properties: {
        nodeAffinity: { type: 'object' },
        podAffinity: { type: 'object' },
        podAntiAffinity: { type: 'object' },
      },
      additionalProperties: false,
    },
  },
  topologySpreadConstraints: {
    default: [],
    description:
      'How the pods are spread over nodes and zones. It matters to the engine redis only.',
    accepts: 'topologySpreadConstraints of a pod',
    schema: listOf('maxSkew', 'topologyKey', 'whenUnsatisfiable'),
  },
  podAnnotations: {
    default: {},
    description: 'Further annotations of the pods.',
    accepts: 'annotations',
    schema: LABELS.schema,
  },
  podLabels: { default: {}, description: 'Further labels of the pods.', ...LABELS },
  extraEnv: {
    default: [],
    description: 'Further variables of the container, such as WEIR_TLS_CERT.',
    accepts: 'variables of a container',
    schema: listOf('name'),
  },
  extraVolumes: {
    default: [],
    description: 'Further volumes of the pods.',
    accepts: 'volumes of a pod',
    schema: listOf('name'),
  },
  extraVolumeMounts: {
    default: [],
    description: 'Where the container mounts these volumes.',
    accepts: 'volumeMounts of a container',
    schema: listOf('name', 'mountPath'),
  },
  'service.type': {
    default: 'ClusterIP',
    description:
      'The type of the Service for checks. With another type than ClusterIP, a second Service of ' +
      'type ClusterIP has the port for health and metrics, because it needs no key.',
    accepts: 'ClusterIP, NodePort or LoadBalancer',
    schema: { type: 'string', enum: ['ClusterIP', 'NodePort', 'LoadBalancer'] },
  },
  'service.annotations': {
    default: {},
    description: 'Annotations of this Service, by which clouds configure a load balancer.',
    accepts: 'annotations',
    schema: LABELS.schema,
  },
  'persistence.existingClaim': {
    default: '',
    description:
      'A PersistentVolumeClaim to use. If it is empty, the chart creates one. It applies to the ' +
      'engine memory only.',
    accepts: 'the name of a PersistentVolumeClaim',
    schema: { type: 'string', maxLength: 253, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$' },
  },
  'persistence.size': {
    default: '1Gi',
    description: 'The size of the volume. It applies to the engine memory only.',
    accepts: 'a quantity',
    schema: { type: 'string', pattern: QUANTITY },
  },
  'persistence.storageClassName': {
    default: '',
    description: "The class of the volume. If it is empty, the cluster's default is used.",
    accepts: 'the name of a StorageClass',
    schema: { type: 'string' },
  },
  'networkPolicy.clients': {
    default: [{ podSelector: {} }],
    description: 'Who may send checks. The default is each pod of the namespace.',
    accepts: PEERS,
    schema: peers,
  },
  'networkPolicy.prometheus': {
    default: [
      {
        namespaceSelector: {},
        podSelector: { matchLabels: { 'app.kubernetes.io/name': 'prometheus' } },
      },
    ],
    description:
      'Who may connect to the port for health and metrics. The default is Prometheus of any ' +
      'namespace.',
    accepts: PEERS,
    schema: peers,
  },
  'serviceMonitor.enabled': {
    default: false,
    description: 'Whether to create a ServiceMonitor, which needs the Prometheus Operator.',
    ...SWITCH,
  },
  'serviceMonitor.labels': {
    default: {},
    description: 'Further labels of the ServiceMonitor, by which Prometheus selects it.',
    ...LABELS,
  },
  'prometheusRule.enabled': {
    default: false,
    description:
      'Whether to create a PrometheusRule with the recording rules and the alerts of weir print ' +
      'prometheus-rules. It needs the Prometheus Operator.',
    ...SWITCH,
  },
  'prometheusRule.labels': {
    default: {},
    description: 'Further labels of the PrometheusRule, by which Prometheus selects it.',
    ...LABELS,
  },
  'dashboard.enabled': {
    default: false,
    description:
      'Whether to create a ConfigMap with the dashboard of weir print grafana. It needs the ' +
      'sidecar of the chart of Grafana.',
    ...SWITCH,
  },
  'dashboard.labels': {
    default: { grafana_dashboard: '1' },
    description: 'Labels of this ConfigMap, by which the sidecar finds it.',
    ...LABELS,
  },
};

/** The rules of the configuration file that a cluster can use. */
function configRules(): JsonSchema {
  const { policies, ...settings } = configSchema().properties as Record<string, JsonSchema>;
  const accepted = Object.entries(settings).filter(([name]) => {
    return (CONFIG_SETTINGS as readonly string[]).includes(name);
  });
  const properties = { ...Object.fromEntries(accepted), policies };
  return { type: 'object', properties: withoutLookaheads(properties), additionalProperties: false };
}

/** Removes patterns that Go cannot compile. weir itself reads the file by all its rules. */
function withoutLookaheads(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutLookaheads);
  if (typeof schema !== 'object' || schema === null) return schema;
  const { pattern } = schema as JsonSchema;
  const isUnknownToGo = typeof pattern === 'string' && pattern.includes('(?!');
  const kept = Object.entries(schema).filter(([keyword]) => {
    return keyword !== 'patternErrorMessage' && !(isUnknownToGo && keyword === 'pattern');
  });
  return Object.fromEntries(kept.map(([keyword, value]) => [keyword, withoutLookaheads(value)]));
}
