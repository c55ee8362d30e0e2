/**
 * Checks the Helm chart with Helm, and its output and all manifests by the schemas of Kubernetes and
 * of the Prometheus Operator. No cluster is needed, and none was used.
 */

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { goModule, goTool } from '../support/programs/go-tool.ts';
import { pythonEnvironment } from '../support/programs/python-environment.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { runWeir } from '../support/weir-command.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const CHART = 'deploy/helm';
const MANIFESTS = 'deploy/kubernetes';
const KUBERNETES = '1.33';
const OPERATOR = 'github.com/prometheus-operator/prometheus-operator';
const CRDS = 'example/prometheus-operator-crd/monitoring.coreos.com_';
/** Kinds of the Prometheus Operator. */
const OPERATOR_KINDS = ['ServiceMonitor', 'PrometheusRule'];

const helm = await goTool('helm.sh/helm/v3/cmd/helm', 'v3.22.0');
const python = await pythonEnvironment('kubernetes', ['kubernetes-validate==1.37.0']);
const operator = await goModule(OPERATOR, 'v0.85.0');

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

const POLICIES = { login: { gateway: 'nginx', limit: 2, duration: 2_592_000_000 } };
/** Values that together use each branch of each template. */
const VARIANTS: Record<string, object> = {
  'the defaults': {},
  Redis: { engine: 'redis' },
  'a configuration file': { config: { logLevel: 'warn', policies: POLICIES } },
  'an image by its digest': {
    image: { digest: `sha256:${'a'.repeat(64)}`, pullSecrets: ['registry'] },
  },
  'a storage class': { persistence: { size: '10Gi', storageClassName: 'fast' } },
  'other clients': {
    networkPolicy: { clients: [{ ipBlock: { cidr: '10.0.0.0/8' } }] },
  },
  'a place for its pods': {
    nodeSelector: { 'kubernetes.io/arch': 'amd64' },
    tolerations: [{ key: 'limits', operator: 'Exists', effect: 'NoSchedule' }],
    affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } },
    podAnnotations: { 'example.com/team': 'edge' },
    podLabels: { team: 'edge' },
  },
  'an existing claim': { persistence: { existingClaim: 'weir-old' } },
  'TLS from a Secret': {
    extraEnv: [
      { name: 'WEIR_TLS_CERT', value: '/run/tls/tls.crt' },
      { name: 'WEIR_TLS_KEY', value: '/run/tls/tls.key' },
    ],
    extraVolumes: [{ name: 'tls', secret: { secretName: 'weir-tls' } }],
    extraVolumeMounts: [{ name: 'tls', mountPath: '/run/tls', readOnly: true }],
  },
  'a load balancer': { service: { type: 'LoadBalancer', annotations: { 'example.com/a': 'b' } } },
  'rules and a dashboard': {
    prometheusRule: { enabled: true, labels: { release: 'monitoring' } },
    dashboard: { enabled: true, labels: { grafana_dashboard: '1', team: 'edge' } },
  },
  'a ServiceMonitor': { serviceMonitor: { enabled: true, labels: { release: 'monitoring' } } },
  'everything with Redis': {
    engine: 'redis',
    redis: { replicas: 5 },
    config: { policies: POLICIES },
    serviceMonitor: { enabled: true },
    prometheusRule: { enabled: true },
    dashboard: { enabled: true },
    service: { type: 'NodePort' },
    podAnnotations: { 'example.com/team': 'edge' },
    topologySpreadConstraints: [
      {
        maxSkew: 1,
        topologyKey: 'topology.kubernetes.io/zone',
        whenUnsatisfiable: 'ScheduleAnyway',
        labelSelector: { matchLabels: { 'app.kubernetes.io/name': 'weir' } },
      },
    ],
    resources: { limits: { cpu: 2, memory: '1Gi' } },
  },
};

/** A map or a list. Its scalars are only compared. */
type Manifest = { [name: string]: Manifest } & Manifest[];

function runHelm(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(helm!, [...args, '--kube-version', '1.33.0'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

function valuesFile(values: object): string {
  const path = join(directory, 'values.json');
  writeFileSync(path, JSON.stringify(values));
  return path;
}

function template(values: object, release = 'weir'): string {
  const { status, stdout, stderr } = runHelm('template', release, CHART, '-f', valuesFile(values));
  expect([status, stderr]).toEqual([0, '']);
  return stdout;
}

/** Validates manifests strictly: an unknown field is an error. */
function validate(path: string) {
  const args = ['-k', KUBERNETES, '--strict', '--no-warn', path];
  const { status, stdout, stderr } = spawnSync(join(python!.bin, 'kubernetes-validate'), args, {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { status, output: `${stdout}${stderr}` };
}

describe.skipIf(helm === undefined)('helm', () => {
  test.each(Object.entries(VARIANTS))('lint accepts the chart with %s', (_, values) => {
    const { status, stdout } = runHelm('lint', '--strict', CHART, '-f', valuesFile(values));
    expect([status, stdout]).toEqual([0, expect.stringContaining('0 chart(s) failed')]);
  });

  test.each([
    ['engine=disk', "at '/engine': value must be one of 'memory', 'redis'"],
    ['redis.replicas=0', "at '/redis/replicas': minimum: got 0, want 1"],
    ['replicas=3', "at '': additional properties 'replicas' not allowed"],
    ['config.logLevl=warn', "at '/config': additional properties 'logLevl' not allowed"],
    ['config.rootKey=a', "at '/config': additional properties 'rootKey' not allowed"],
    ['networkPolicy.clients=', "at '/networkPolicy/clients': got string, want array"],
  ])('rejects the value %s, and says why', (value, message) => {
    const { status, stderr } = runHelm('template', 'weir', CHART, '--set', value);
    expect([status, stderr]).toEqual([1, expect.stringContaining(message)]);
  });

  test('rejects versions of Kubernetes without the sleep action', () => {
    const args = ['template', 'weir', CHART, '--kube-version', '1.29.0'];
    const { status, stderr } = spawnSync(helm!, args, { cwd: ROOT, encoding: 'utf8' });
    expect([status, stderr]).toEqual([1, expect.stringContaining('requires kubeVersion')]);
  });

  test('prints the files of deploy/kubernetes by the command in their head', () => {
    const made = readdirSync(join(ROOT, MANIFESTS)).flatMap((name) => {
      const text = readFileSync(join(ROOT, MANIFESTS, name), 'utf8');
      const [, command] = /^#\s+helm (template .*)$/m.exec(text) ?? [];
      if (command === undefined) return [];
      const args = command.split(' ');
      const { status, stdout, stderr } = spawnSync(helm!, args, { cwd: ROOT, encoding: 'utf8' });
      expect([name, status, stderr]).toEqual([name, 0, '']);
      expect(text.slice(text.indexOf('---\n'))).toBe(stdout);
      return [name];
    });
    expect(made.toSorted()).toEqual(['replicas.yaml', 'servicemonitor.yaml', 'standalone.yaml']);
  });

  test('writes a configuration file that weir accepts', async () => {
    const manifests = parseAllDocuments(template(VARIANTS['a configuration file']));
    const [config] = manifests.map((of) => of.toJS()).filter(({ kind }) => kind === 'ConfigMap');
    const path = join(directory, 'weir.json');
    writeFileSync(path, config.data['weir.json']);
    const { code, stdout } = await runWeir('http://127.0.0.1:7070', ['config', 'check', path]);
    expect([code, stdout]).toEqual([0, expect.stringContaining('valid: 1 policy, 1 setting')]);
  });

  /** The manifests of the chart, by kind and name. */
  const manifestsOf = (values: object, release?: string): Record<string, Manifest> => {
    const all = parseAllDocuments(template(values, release)).map((of) => of.toJS() as Manifest);
    return Object.fromEntries(all.map((one) => [`${one.kind} ${one.metadata.name}`, one]));
  };

  test('puts pods where the values say, with their volumes and variables', () => {
    for (const name of ['a place for its pods', 'TLS from a Secret', 'everything with Redis']) {
      const values = VARIANTS[name] as Record<string, unknown>;
      const { metadata, spec } = manifestsOf(values)['Deployment weir'].spec.template;
      for (const field of [
        'nodeSelector',
        'tolerations',
        'affinity',
        'topologySpreadConstraints',
      ]) {
        expect([name, field, spec[field]]).toEqual([name, field, values[field]]);
      }
      expect(metadata.labels).toMatchObject({
        'app.kubernetes.io/instance': 'weir',
        ...(values.podLabels as object | undefined),
      });
      expect(metadata.annotations ?? {}).toMatchObject(values.podAnnotations ?? {});
      const [container] = spec.containers;
      for (const [field, part] of [
        ['extraEnv', container.env],
        ['extraVolumeMounts', container.volumeMounts],
        ['extraVolumes', spec.volumes],
      ] as const) {
        expect(part).toEqual(expect.arrayContaining((values[field] as object[]) ?? []));
      }
    }
    const annotations = manifestsOf(VARIANTS['everything with Redis'])['Deployment weir'].spec
      .template.metadata.annotations;
    expect(Object.keys(annotations)).toEqual(['checksum/config', 'example.com/team']);
  });

  test('uses an existing claim, and creates none then', () => {
    const { 'Deployment weir': deployment, ...others } = manifestsOf(VARIANTS['an existing claim']);
    expect(deployment.spec.template.spec.volumes[0]).toEqual({
      name: 'data',
      persistentVolumeClaim: { claimName: 'weir-old' },
    });
    expect(Object.keys(others)).not.toContain('PersistentVolumeClaim weir');
    expect(Object.keys(manifestsOf({}))).toContain('PersistentVolumeClaim weir');
  });

  test('shows only the port for checks to a load balancer, and scrapes the other one', () => {
    const monitored = { ...VARIANTS['a load balancer'], serviceMonitor: { enabled: true } };
    const made = manifestsOf(monitored, 'limits');
    const portsOf = (name: string) => {
      const { type, ports } = made[`Service ${name}`].spec;
      return [type, ports.map((port) => port.name)];
    };
    expect(portsOf('limits')).toEqual(['LoadBalancer', ['http']]);
    expect(portsOf('limits-admin')).toEqual([undefined, ['admin']]);
    expect(made['Service limits'].metadata.annotations).toEqual({ 'example.com/a': 'b' });
    // Both services have this label, so the job does not depend on the type.
    const { jobLabel } = made['ServiceMonitor limits'].spec;
    expect(made['Service limits-admin'].metadata.labels[String(jobLabel)]).toBe('limits');
  });

  test('has the rules that weir prints for the job of the release, and the dashboard', async () => {
    for (const release of ['weir', 'limits']) {
      const made = manifestsOf(VARIANTS['rules and a dashboard'], release);
      const rules = await runWeir('', ['print', 'prometheus-rules', '--job', release]);
      const rule = made[`PrometheusRule ${release}`];
      expect(rule.spec).toEqual(parse(rules.stdout));
      expect(rule.metadata.labels.release).toBe('monitoring');
      const dashboard = await runWeir('', ['print', 'grafana']);
      const { data, metadata } = made[`ConfigMap ${release}-dashboard`];
      expect(data).toEqual({ [`default-${release}.json`]: dashboard.stdout });
      expect(metadata.labels).toMatchObject({ grafana_dashboard: '1', team: 'edge' });
    }
  });

  test('gives two releases in one namespace different names and selectors', () => {
    const namesOf = (release: string) => {
      return parseAllDocuments(template(VARIANTS['everything with Redis'], release)).map((of) => {
        const { kind, metadata, spec } = of.toJS();
        return `${kind} ${metadata.name} ${JSON.stringify(spec?.selector ?? {})}`;
      });
    };
    const second = new Set(namesOf('second'));
    expect(namesOf('first').filter((name) => second.has(name))).toEqual([]);
  });
});

describe.skipIf(python === undefined)('kubernetes-validate', () => {
  test.each(readdirSync(join(ROOT, MANIFESTS)))('accepts %s', (name) => {
    const { status, output } = validate(join(MANIFESTS, name));
    expect([status, output]).toEqual([0, expect.not.stringMatching(/ERROR|fail/i)]);
  });

  test.skipIf(helm === undefined).each(Object.entries(VARIANTS))(
    'accepts the chart with %s',
    (_, values) => {
      const path = join(directory, 'manifests.yaml');
      writeFileSync(path, template(values));
      const { status, output } = validate(path);
      const objects = parseAllDocuments(readFileSync(path, 'utf8')).map((of) => of.toJS());
      const known = objects.filter(({ kind }) => !OPERATOR_KINDS.includes(kind));
      expect([status, output.match(/passed for resource/g)?.length]).toEqual([0, known.length]);
    },
  );

  test('rejects an unknown field', () => {
    const path = join(directory, 'wrong.yaml');
    const text = readFileSync(join(ROOT, MANIFESTS, 'standalone.yaml'), 'utf8');
    writeFileSync(path, text.replace('startupProbe:', 'startProbe:'));
    expect(validate(path)).toEqual({ status: 1, output: expect.stringContaining('startProbe') });
  });
});

describe.skipIf(operator === undefined)('by the schema of the Prometheus Operator,', () => {
  const validatorOf = (plural: string) => {
    const crd = parse(readFileSync(join(operator!, `${CRDS}${plural}.yaml`), 'utf8'));
    const [{ schema }] = crd.spec.versions;
    return new Ajv({ strict: false, validateFormats: false }).compile(
      withoutUnknownFields(schema.openAPIV3Schema),
    );
  };

  test('the ServiceMonitor is valid', () => {
    const isValid = validatorOf('servicemonitors');
    const monitor = parse(readFileSync(join(ROOT, MANIFESTS, 'servicemonitor.yaml'), 'utf8'));
    expect([isValid(monitor), isValid.errors]).toEqual([true, null]);
    const wrong = { ...monitor, spec: { ...monitor.spec, endpoints: [{ prot: 'admin' }] } };
    expect(isValid(wrong)).toBe(false);
  });

  test.skipIf(helm === undefined)('the PrometheusRule is valid', () => {
    const isValid = validatorOf('prometheusrules');
    const made = parseAllDocuments(template(VARIANTS['rules and a dashboard']));
    const rule = made.map((of) => of.toJS()).find(({ kind }) => kind === 'PrometheusRule');
    expect([isValid(rule), isValid.errors]).toEqual([true, null]);
    expect(isValid({ ...rule, spec: { groups: [{ rules: [] }] } })).toBe(false);
  });
});

/** The API server rejects fields that a schema does not name, with strict validation of fields. */
function withoutUnknownFields(schema: unknown): Record<string, unknown> {
  const strict = (part: unknown): unknown => {
    if (Array.isArray(part)) return part.map(strict);
    if (typeof part !== 'object' || part === null) return part;
    const inner = Object.fromEntries(
      Object.entries(part)
        // A pattern of Go, which JavaScript cannot compile.
        .filter(([name, value]) => name !== 'pattern' || !String(value).includes('(?i)'))
        .map(([name, value]) => [name, strict(value)]),
    );
    const isClosed = 'properties' in inner && !('additionalProperties' in inner);
    return isClosed && inner.type === 'object' ? { ...inner, additionalProperties: false } : inner;
  };
  const top = strict(schema) as { properties: Record<string, unknown> };
  // Each object has the fields of ObjectMeta, which a CRD does not repeat.
  return { ...top, properties: { ...top.properties, metadata: { type: 'object' } } };
}
