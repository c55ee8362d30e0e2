/** The manifests of deploy/kubernetes and the chart of deploy/helm agree with weir. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv, type ValidateFunction } from 'ajv';
import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { annotations, environmentName, SETTING_NAMES } from '../../src/config/schema.ts';
import { METRICS } from '../../src/observe/metric-declarations.ts';
import { JOB_MATCHER } from '../../src/observe/rules/alert.ts';
import { CHART_VALUES, CONFIG_SETTINGS } from '../../tools/docs/chart-values.ts';
import { callWeir } from '../support/weir-command.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const MANIFESTS = 'deploy/kubernetes';
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');
const { version } = JSON.parse(read('package.json')) as { version: string };

/** A map or a list. Its scalars are only compared. */
type Yaml = { [name: string]: Yaml } & Yaml[];

const isNamed = (expected: string) => (one: Yaml) => String(one.name) === expected;

function documentsOf(name: string): Yaml[] {
  return parseAllDocuments(read(`${MANIFESTS}/${name}`)).map((document) => {
    expect([name, document.errors]).toEqual([name, []]);
    return document.toJS() as Yaml;
  });
}

function ofKind(name: string, kind: string): Yaml | undefined {
  return documentsOf(name).find((manifest) => String(manifest.kind) === kind);
}

function podOf(name: string): { pod: Yaml; weir: Yaml } {
  const pod = ofKind(name, 'Deployment')!.spec.template.spec;
  const containers = [...(pod.initContainers ?? []), ...pod.containers];
  return { pod, weir: containers.find(isNamed('weir'))! };
}

const POLICY = { gateway: 'nginx', limit: 2, duration: 60_000 };
const SERVICES = ['standalone.yaml', 'replicas.yaml'];
const PODS = ['sidecar.yaml', ...SERVICES];

test('deploy/kubernetes has no other manifests', () => {
  expect(readdirSync(join(ROOT, MANIFESTS)).toSorted()).toEqual(
    [...PODS, 'servicemonitor.yaml'].toSorted(),
  );
});

test('the chart and all manifests have the version of package.json', () => {
  expect(parse(read('deploy/helm/Chart.yaml'))).toMatchObject({ version, appVersion: version });
  for (const name of PODS) expect(podOf(name).weir.image).toBe(`weir:${version}`);
  for (const name of [...SERVICES, 'servicemonitor.yaml']) {
    for (const { kind, metadata } of documentsOf(name)) {
      const shown = metadata.labels['app.kubernetes.io/version'];
      expect([name, kind, shown]).toEqual([name, kind, version]);
    }
  }
});

describe.each(PODS)('%s', (name) => {
  const { pod, weir } = podOf(name);
  const portNamed = (of: string) => weir.ports.find(isNamed(of))?.containerPort;

  test('runs weir without privileges, without a token of the API server, and with all its memory', () => {
    expect({ ...pod.securityContext, ...weir.securityContext }).toEqual({
      runAsNonRoot: true,
      runAsUser: 10_001,
      runAsGroup: 10_001,
      fsGroup: 10_001,
      seccompProfile: { type: 'RuntimeDefault' },
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    expect(pod.automountServiceAccountToken).toBe(false);
    expect(weir.args).toEqual(['serve']);
    const { limits, requests } = weir.resources;
    expect(limits.memory).toMatch(/^\d+Mi$/);
    expect(requests.memory).toBe(limits.memory);
  });

  test('sets only variables that weir reads, and the root key from a mounted file', () => {
    const known = SETTING_NAMES.map(environmentName);
    expect(weir.env.filter((variable) => !known.includes(String(variable.name)))).toEqual([]);
    const file = String(weir.env.find(isNamed('WEIR_ROOT_KEY_FILE'))?.value);
    const mounts = weir.volumeMounts.map(({ mountPath }) => mountPath);
    expect(mounts.some((mount) => file.startsWith(`${mount}/`))).toBe(true);
  });

  test('mounts a volume for data, and every volume that it declares', () => {
    expect(weir.volumeMounts.map(({ mountPath }) => mountPath)).toContain('/var/lib/weir');
    const mounted = weir.volumeMounts.map((mount) => mount.name);
    expect(mounted.toSorted()).toEqual(pod.volumes.map((volume) => volume.name).toSorted());
  });

  test('probes the admin port by its name', () => {
    expect(portNamed('admin')).toBe(annotations('adminPort').default);
    expect(weir.startupProbe).toMatchObject({ httpGet: { path: '/readyz', port: 'admin' } });
    expect(weir.livenessProbe).toMatchObject({ httpGet: { path: '/livez', port: 'admin' } });
  });
});

test('sidecar.yaml has a native sidecar, which only its pod reaches', () => {
  const { pod, weir } = podOf('sidecar.yaml');
  // It starts before the application and ends after it.
  expect(pod.initContainers).toEqual([weir]);
  expect([weir.restartPolicy, weir.lifecycle]).toEqual(['Always', undefined]);
  // The application stays in its service when weir is not ready.
  expect(weir.readinessProbe).toBeUndefined();
  const host = weir.env.find(isNamed('WEIR_HOST'))?.value;
  const [application] = pod.containers;
  const url = application.env.find(isNamed('WEIR_URL'))?.value;
  expect([host, url]).toEqual(['127.0.0.1', `http://127.0.0.1:${annotations('port').default}`]);
});

describe.each(SERVICES)('%s', (name) => {
  const deployment = ofKind(name, 'Deployment')!;
  const { weir } = podOf(name);
  const labels = deployment.spec.template.metadata.labels;
  const portNames = weir.ports.map((port) => port.name);

  test('has selectors that match its pods', () => {
    const selectors = [
      deployment.spec.selector.matchLabels,
      ofKind(name, 'Service')!.spec.selector,
      ofKind(name, 'NetworkPolicy')!.spec.podSelector.matchLabels,
      ofKind(name, 'PodDisruptionBudget')?.spec.selector.matchLabels ?? {},
      ofKind('servicemonitor.yaml', 'ServiceMonitor')!.spec.selector.matchLabels,
    ];
    for (const selector of selectors) expect(labels).toMatchObject(selector as object);
  });

  test('names ports that the container has', () => {
    const service = ofKind(name, 'Service')!;
    expect(weir.ports.map(({ containerPort }) => containerPort)).toEqual([
      annotations('port').default,
      annotations('adminPort').default,
    ]);
    expect(service.spec.ports.map(({ targetPort }) => targetPort)).toEqual(portNames);
    const allowed = ofKind(name, 'NetworkPolicy')!.spec.ingress.flatMap(({ ports }) => ports);
    expect(allowed.map(({ port }) => port)).toEqual(portNames);
    const [endpoint] = ofKind('servicemonitor.yaml', 'ServiceMonitor')!.spec.endpoints;
    expect(service.spec.ports.map((port) => port.name)).toContain(endpoint.port);
    expect(weir.readinessProbe).toMatchObject({ httpGet: { path: '/readyz', port: 'admin' } });
  });
});

test('the ServiceMonitor keeps the namespaces of weir in the labels of metrics', () => {
  const labelled = Object.values(METRICS).filter((metric) => {
    return 'labels' in metric && 'namespace' in metric.labels;
  });
  expect(labelled.length).toBeGreaterThan(0);
  const { endpoints } = ofKind('servicemonitor.yaml', 'ServiceMonitor')!.spec;
  expect(endpoints.map(({ honorLabels }) => honorLabels)).toEqual([true]);
});

test('one process uses a volume, and replicas share Redis', () => {
  const single = ofKind('standalone.yaml', 'Deployment')!;
  expect(single.spec).toMatchObject({ replicas: 1, strategy: { type: 'Recreate' } });
  const claim = ofKind('standalone.yaml', 'PersistentVolumeClaim')!;
  const [data] = podOf('standalone.yaml').pod.volumes;
  expect(data.persistentVolumeClaim?.claimName).toBe(claim.metadata.name);
  expect(podOf('standalone.yaml').weir.lifecycle).toBeUndefined();
  expect(ofKind('standalone.yaml', 'PodDisruptionBudget')).toBeUndefined();

  const shared = ofKind('replicas.yaml', 'Deployment')!;
  expect(shared.spec).toMatchObject({ replicas: 3, strategy: { type: 'RollingUpdate' } });
  const variables = podOf('replicas.yaml').weir.env.map((variable) => variable.name);
  expect(variables).toEqual(expect.arrayContaining(['WEIR_ENGINE', 'WEIR_REDIS_URL']));
  expect(podOf('replicas.yaml').pod.volumes[0].emptyDir).toEqual({});
  expect(podOf('replicas.yaml').weir.lifecycle).toEqual({ preStop: { sleep: { seconds: 5 } } });
  expect(ofKind('replicas.yaml', 'PodDisruptionBudget')!.spec.maxUnavailable).toBe(1);
});

test('the chart has the rules and the dashboard that weir prints, and uses them', async () => {
  for (const [name, file, template] of [
    ['prometheus-rules', 'files/prometheus-rules.yml', 'prometheusrule.yaml'],
    ['grafana', 'files/grafana-dashboard.json', 'dashboard.yaml'],
  ]) {
    const { stdout } = await callWeir('', ['print', name]);
    expect([name, read(`deploy/helm/${file}`) === stdout]).toEqual([name, true]);
    expect(read(`deploy/helm/templates/${template}`)).toContain(`.Files.Get "${file}"`);
  }
  // The template replaces this text by the name of the release.
  expect(read('deploy/helm/templates/prometheusrule.yaml')).toContain('replace "job=\\"weir\\""');
  expect(read('deploy/helm/files/prometheus-rules.yml')).toContain(JOB_MATCHER);
});

describe('the values of the chart', () => {
  const schema = JSON.parse(read('deploy/helm/values.schema.json'));
  const defaults = () => parse(read('deploy/helm/values.yaml'));
  const validate: ValidateFunction = new Ajv({ strict: false }).compile(schema);
  const isValid = (change: object) => validate({ ...defaults(), ...change });

  test('are valid by default', () => {
    expect([validate(defaults()), validate.errors]).toEqual([true, null]);
  });

  test('are valid in every example of docs/kubernetes.md', () => {
    const examples = [...read('docs/kubernetes.md').matchAll(/^```yaml\n(.*?)^```$/gms)];
    expect(examples.length).toBeGreaterThan(0);
    for (const [, text] of examples) expect([text, isValid(parse(text))]).toEqual([text, true]);
  });

  test('are those that the templates use', () => {
    const templates = readdirSync(join(ROOT, 'deploy/helm/templates'))
      .map((name) => read(`deploy/helm/templates/${name}`))
      .join('\n');
    const used = [...templates.matchAll(/\.Values\.([\w.]+)/g)].map(([, path]) => path);
    // The image is used as a whole.
    const declared = Object.keys(CHART_VALUES).map((path) => path.replace(/^image\..*/, 'image'));
    const named = used.map((path) => path.replace(/^image\..*/, 'image'));
    expect([...new Set(named)].toSorted()).toEqual([...new Set(declared)].toSorted());
  });

  test('have no pattern that Go cannot compile', () => {
    expect(JSON.stringify(schema)).not.toMatch(/\(\?[!=<]/);
  });

  test('accept durations with a unit, as the configuration file', () => {
    expect(
      isValid({ config: { drainMs: '2s', policies: { a: { ...POLICY, duration: '60s' } } } }),
    ).toBe(true);
    expect(isValid({ config: { drainMs: '2' } })).toBe(false);
  });

  test('accept settings and policies, but no address, file or secret', () => {
    const policies = { login: POLICY };
    expect(isValid({ config: { logLevel: 'warn', policies } })).toBe(true);
    for (const name of ['host', 'rootKey', 'rootKeyFile', 'redisUrl', 'tlsKey', 'dataDir']) {
      expect([name, isValid({ config: { [name]: 'a' } })]).toEqual([name, false]);
    }
    const files = SETTING_NAMES.filter((name) => annotations(name).accepts.startsWith('a path'));
    const excluded = SETTING_NAMES.filter((name) => annotations(name).secret).concat(files);
    expect(CONFIG_SETTINGS.filter((name) => excluded.includes(name))).toEqual([]);
  });

  test.each([
    { engine: 'disk' },
    { replicas: 3 },
    { redis: { replicas: 0 } },
    { config: { logLevl: 'warn' } },
    { config: { policies: { login: { gateway: 'nginx', limit: 2 } } } },
    { networkPolicy: { clients: [] } },
    { image: { digest: 'sha256:1' } },
    { nodeSelector: { pool: 1 } },
    { tolerations: {} },
    { affinity: { nodeAfinity: {} } },
    { topologySpreadConstraints: [{ maxSkew: 1 }] },
    { extraEnv: [{ value: 'a' }] },
    { extraEnv: { WEIR_DRAIN_MS: '2s' } },
    { extraVolumeMounts: [{ name: 'tls' }] },
    { service: { type: 'ExternalName' } },
    { persistence: { existingClaim: 'A' } },
    { dashboard: { enabled: 'yes' } },
    { config: { policies: { a: { ...POLICY, gateway: 'traefik', onError: 'allow' } } } },
  ])('are rejected if they are wrong: %j', (change) => {
    expect(isValid(change)).toBe(false);
  });
});
