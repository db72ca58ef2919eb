-- Prompts: each template once, found by its hash.

-- name: prompt_get :one Prompt
-- One prompt by id.
select * from main.prompts where id = :id;

-- name: prompt_add :none
-- Add a template under an id made from its hash; a repeat changes nothing.
insert into main.prompts (id, name, template, created_at) values (:id, :name, :template, :created_at)
on conflict (id) do nothing;

-- name: prompt_find :one text
-- The id of a template, the oldest when another program stored it twice.
select id from main.prompts where template = :template order by created_at, id limit 1;
