{{ config(materialized='table', type='streaming', execution_config={'pipeline.name': 'written'},
          connector_properties={'connector': 'filesystem', 'format': 'csv', 'path': 'dbt.csv'}) }}
select id from {{ ref('big') }}
