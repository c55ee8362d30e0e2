/** All generated documentation. Each entry is rendered from the declarations in the sources. */

import { ALERT_PARTS } from './alerts.ts';
import { chartValuesSchemaJson, chartValuesTable, chartValuesYaml } from './chart.ts';
import { commandSections, commandsTable } from './commands.ts';
import { configSchemaJson, rulesBeyondSchema } from './config-schema.ts';
import { constantsTable } from './constants.ts';
import { errorSections, errorsTable } from './errors.ts';
import { exitCodesTable } from './exit-codes.ts';
import { faultsTable } from './faults.ts';
import { figuresTable } from './figures.ts';
import { gatewayExamples } from './gateway-examples.ts';
import { GATEWAY_PARTS } from './gateways.ts';
import type { Generated } from './generator.ts';
import { METRIC_PARTS } from './metrics.ts';
import { openApiJson } from './openapi.ts';
import { OVERLOAD_PARTS } from './overload.ts';
import { permissionsTables, rolesTable } from './permissions.ts';
import { policyFieldsTable } from './policies.ts';
import { printedFiles } from './printed-files.ts';
import { protocolConstantsTable } from './protocol-constants.ts';
import { apiPage } from './reference/api.ts';
import { settingsTables } from './settings.ts';

export const GENERATED: Generated = {
  files: {
    'docs/api.md': apiPage,
    'docs/openapi.json': openApiJson,
    'docs/weir.schema.json': configSchemaJson,
    'deploy/helm/values.yaml': chartValuesYaml,
    'deploy/helm/values.schema.json': chartValuesSchemaJson,
    ...gatewayExamples,
    ...printedFiles,
  },
  parts: {
    ...ALERT_PARTS,
    ...GATEWAY_PARTS,
    ...METRIC_PARTS,
    ...OVERLOAD_PARTS,
    'chart-values': chartValuesTable,
    'command-sections': commandSections,
    commands: commandsTable,
    'config-schema-rules': rulesBeyondSchema,
    constants: constantsTable,
    'error-sections': errorSections,
    errors: errorsTable,
    'exit-codes': exitCodesTable,
    faults: faultsTable,
    figures: figuresTable,
    permissions: permissionsTables,
    'policy-fields': policyFieldsTable,
    'protocol-constants': protocolConstantsTable,
    roles: rolesTable,
    settings: settingsTables,
  },
};
