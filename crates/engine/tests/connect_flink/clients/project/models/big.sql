{{ config(materialized='view', type='streaming') }}
select id from {{ source('own', 'orders') }} where id > 2
